/* SPDX-License-Identifier: BSD-2-Clause */
/* The extension module moonrail._moonrail. */
#include "py_moonrail.h"

static int module_exec(PyObject *module)
{
	PyObject *type = py_mooncake_type();
	int ret;

	if (!type)
		return -1;
	ret = PyObject_SetAttrString(module, "MooncakeEngine", type);
	Py_DECREF(type);
	if (ret)
		return -1;
	return PyModule_AddStringConstant(module, "version", te_version()) ||
	       PyModule_AddStringConstant(module, "fabric_version",
					  te_fabric_version());
}

static PyModuleDef_Slot module_slots[] = {
	{ Py_mod_exec, (void *)module_exec },
	{ 0, NULL },
};

static struct PyModuleDef module_def = {
	PyModuleDef_HEAD_INIT,
	.m_name = "moonrail._moonrail",
	.m_doc = "The part of moonrail that is written in C.",
	.m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__moonrail(void)
{
	return PyModuleDef_Init(&module_def);
}
