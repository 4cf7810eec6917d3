/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extension module moonrail._signals: saves the actions of all signals and
 * restores them.
 *
 * Libraries that libfabric links to may install handlers when they are loaded.
 * libinfinipath, for example, ends the process at SIGINT, so that Python would
 * not raise KeyboardInterrupt. The package moonrail therefore restores the
 * actions after it has loaded the libraries. This module links to none of them.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <signal.h>
#include <stdlib.h>

static PyObject *signals_save(PyObject *module, PyObject *args)
{
	struct sigaction *act = calloc(NSIG, sizeof(*act));
	PyObject *bytes;
	int i;

	(void)module;
	(void)args;
	if (!act)
		return PyErr_NoMemory();
	for (i = 1; i < NSIG; i++)
		sigaction(i, NULL, &act[i]);
	bytes = PyBytes_FromStringAndSize((char *)act, NSIG * sizeof(*act));
	free(act);
	return bytes;
}

static PyObject *signals_restore(PyObject *module, PyObject *bytes)
{
	const struct sigaction *act;
	struct sigaction now;
	int i;

	(void)module;
	if (!PyBytes_Check(bytes) ||
	    PyBytes_Size(bytes) != NSIG * (Py_ssize_t)sizeof(*act)) {
		PyErr_SetString(PyExc_TypeError, "the result of save() is required");
		return NULL;
	}
	act = (const struct sigaction *)PyBytes_AsString(bytes);
	for (i = 1; i < NSIG; i++)
		if (!sigaction(i, NULL, &now) &&
		    now.sa_handler != act[i].sa_handler)
			sigaction(i, &act[i], NULL);
	Py_RETURN_NONE;
}

static PyMethodDef signals_methods[] = {
	{ "save", signals_save, METH_NOARGS,
	  "save() -> bytes\n\nReturns the actions of all signals." },
	{ "restore", signals_restore, METH_O,
	  "restore(actions)\n\nInstalls the actions that have changed since save()." },
	{ NULL, NULL, 0, NULL },
};

static struct PyModuleDef signals_def = {
	PyModuleDef_HEAD_INIT,
	.m_name = "moonrail._signals",
	.m_methods = signals_methods,
};

PyMODINIT_FUNC PyInit__signals(void)
{
	return PyModuleDef_Init(&signals_def);
}
