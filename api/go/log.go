// SPDX-License-Identifier: BSD-2-Clause

package moonrail

import "C"

import "unsafe"

//export goMoonrailLog
func goMoonrailLog(level C.int, module, text *C.char, _ unsafe.Pointer) {
	logLine(LogLevel(level), C.GoString(module), C.GoString(text))
}
