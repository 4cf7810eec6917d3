/* SPDX-License-Identifier: BSD-2-Clause */
/* The extension module moonrail._moonrail. */
#include "py_moonrail.h"

/* Adds the type to the module and drops the reference to it. "type" is NULL if
 * the type could not be created. Returns -1 after an error. */
static int module_add(PyObject *module, const char *name, PyObject *type)
{
	int ret = type ? PyObject_SetAttrString(module, name, type) : -1;

	Py_XDECREF(type);
	return ret;
}

static int module_exec(PyObject *module)
{
	return module_add(module, "MooncakeEngine", py_mooncake_type()) ||
			       module_add(module, "Handle",
					  py_handle_type()) ||
			       PyModule_AddStringConstant(module, "version",
							  te_version()) ||
			       PyModule_AddStringConstant(module,
							  "fabric_version",
							  te_fabric_version()) ?
		       -1 :
		       0;
}

static PyMethodDef module_methods[] = {
	{ "last_error", py_last_error, METH_NOARGS, NULL },
	{ "buffer_address", py_buffer_address, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyModuleDef_Slot module_slots[] = {
	{ Py_mod_exec, (void *)module_exec },
	{ 0, NULL },
};

static struct PyModuleDef module_def = {
	PyModuleDef_HEAD_INIT,
	.m_name = "moonrail._moonrail",
	.m_doc = "The part of moonrail that is written in C.",
	.m_methods = module_methods,
	.m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__moonrail(void)
{
	return PyModuleDef_Init(&module_def);
}
