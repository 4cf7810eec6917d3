/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Atomic operations on one element.
 */
#include <stdint.h>
#include <string.h>

#include "prov/moonrail/moonrail_amo.h"

static const uint8_t amo_sizes[] = {
	[FI_INT8] = 1, [FI_UINT8] = 1, [FI_INT16] = 2, [FI_UINT16] = 2,
	[FI_INT32] = 4, [FI_UINT32] = 4, [FI_INT64] = 8, [FI_UINT64] = 8,
	[FI_FLOAT] = sizeof(float), [FI_DOUBLE] = sizeof(double),
	[FI_FLOAT_COMPLEX] = sizeof(float _Complex),
	[FI_DOUBLE_COMPLEX] = sizeof(double _Complex),
	[FI_LONG_DOUBLE] = sizeof(long double),
	[FI_LONG_DOUBLE_COMPLEX] = sizeof(long double _Complex),
};

static bool amo_kind_has(enum moonrail_amo_kind kind, enum fi_op op)
{
	if (kind == MOONRAIL_AMO_COMPARE)
		return op >= FI_CSWAP && op <= FI_MSWAP;
	if (op == FI_ATOMIC_READ)
		return kind == MOONRAIL_AMO_FETCH;
	return op <= FI_ATOMIC_WRITE;
}

static bool amo_of_bits(enum fi_op op)
{
	return op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP;
}

static bool amo_of_order(enum fi_op op)
{
	return op == FI_MIN || op == FI_MAX ||
	       (op >= FI_CSWAP_LE && op <= FI_CSWAP_GT);
}

static bool amo_complex(enum fi_datatype type)
{
	return type == FI_FLOAT_COMPLEX || type == FI_DOUBLE_COMPLEX ||
	       type == FI_LONG_DOUBLE_COMPLEX;
}

size_t moonrail_amo_size(enum moonrail_amo_kind kind, enum fi_datatype type,
			 enum fi_op op)
{
	if ((size_t)type >= sizeof(amo_sizes) || !amo_kind_has(kind, op))
		return 0;
	if ((type > FI_UINT64 && amo_of_bits(op)) ||
	    (amo_complex(type) && amo_of_order(op)))
		return 0;
	return amo_sizes[type];
}

/* Operations for all types. Each assigns the new value to *v. W: the type in
 * which sums and products are computed. Integers wrap around on overflow. */
#define AMO_COMMON(T, W)						\
	case FI_SUM:							\
		*v = (T)((W)*v + (W)a);					\
		return;							\
	case FI_PROD:							\
		*v = (T)((W)*v * (W)a);					\
		return;							\
	case FI_LOR:							\
		*v = (T)(*v || a);					\
		return;							\
	case FI_LAND:							\
		*v = (T)(*v && a);					\
		return;							\
	case FI_LXOR:							\
		*v = (T)(!*v != !a);					\
		return;							\
	case FI_ATOMIC_WRITE:						\
		*v = a;							\
		return;							\
	case FI_CSWAP:							\
		*v = c == *v ? a : *v;					\
		return;							\
	case FI_CSWAP_NE:						\
		*v = c != *v ? a : *v;					\
		return

/* Operations for types whose values can be compared with <. */
#define AMO_ORDER							\
	case FI_MIN:							\
		*v = a < *v ? a : *v;					\
		return;							\
	case FI_MAX:							\
		*v = a > *v ? a : *v;					\
		return;							\
	case FI_CSWAP_LE:						\
		*v = c <= *v ? a : *v;					\
		return;							\
	case FI_CSWAP_LT:						\
		*v = c < *v ? a : *v;					\
		return;							\
	case FI_CSWAP_GE:						\
		*v = c >= *v ? a : *v;					\
		return;							\
	case FI_CSWAP_GT:						\
		*v = c > *v ? a : *v;					\
		return

#define AMO_INT(name, T)						\
static void name(enum fi_op op, T *v, T a, T c)				\
{									\
	switch (op) {							\
	AMO_COMMON(T, uint64_t);					\
	AMO_ORDER;							\
	case FI_BOR:							\
		*v = (T)(*v | a);					\
		return;							\
	case FI_BAND:							\
		*v = (T)(*v & a);					\
		return;							\
	case FI_BXOR:							\
		*v = (T)(*v ^ a);					\
		return;							\
	case FI_MSWAP:							\
		*v = (T)((a & c) | (*v & ~c));				\
		return;							\
	default:							\
		return;							\
	}								\
}

#define AMO_REAL(name, T)						\
static void name(enum fi_op op, T *v, T a, T c)				\
{									\
	switch (op) {							\
	AMO_COMMON(T, T);						\
	AMO_ORDER;							\
	default:							\
		return;							\
	}								\
}

#define AMO_COMPLEX(name, T)						\
static void name(enum fi_op op, T *v, T a, T c)				\
{									\
	switch (op) {							\
	AMO_COMMON(T, T);						\
	default:							\
		return;							\
	}								\
}

AMO_INT(amo_i8, int8_t)
AMO_INT(amo_u8, uint8_t)
AMO_INT(amo_i16, int16_t)
AMO_INT(amo_u16, uint16_t)
AMO_INT(amo_i32, int32_t)
AMO_INT(amo_u32, uint32_t)
AMO_INT(amo_i64, int64_t)
AMO_INT(amo_u64, uint64_t)
AMO_REAL(amo_float, float)
AMO_REAL(amo_double, double)
AMO_REAL(amo_long_double, long double)
AMO_COMPLEX(amo_float_complex, float _Complex)
AMO_COMPLEX(amo_double_complex, double _Complex)
AMO_COMPLEX(amo_long_double_complex, long double _Complex)

union amo_number {
	int8_t i8;
	uint8_t u8;
	int16_t i16;
	uint16_t u16;
	int32_t i32;
	uint32_t u32;
	int64_t i64;
	uint64_t u64;
	float f;
	double d;
	long double ld;
	float _Complex fc;
	double _Complex dc;
	long double _Complex ldc;
};

static void amo_apply(enum fi_datatype type, enum fi_op op, union amo_number *v,
		      const union amo_number *a, const union amo_number *c)
{
	switch (type) {
	case FI_INT8:
		amo_i8(op, &v->i8, a->i8, c->i8);
		return;
	case FI_UINT8:
		amo_u8(op, &v->u8, a->u8, c->u8);
		return;
	case FI_INT16:
		amo_i16(op, &v->i16, a->i16, c->i16);
		return;
	case FI_UINT16:
		amo_u16(op, &v->u16, a->u16, c->u16);
		return;
	case FI_INT32:
		amo_i32(op, &v->i32, a->i32, c->i32);
		return;
	case FI_UINT32:
		amo_u32(op, &v->u32, a->u32, c->u32);
		return;
	case FI_INT64:
		amo_i64(op, &v->i64, a->i64, c->i64);
		return;
	case FI_UINT64:
		amo_u64(op, &v->u64, a->u64, c->u64);
		return;
	case FI_FLOAT:
		amo_float(op, &v->f, a->f, c->f);
		return;
	case FI_DOUBLE:
		amo_double(op, &v->d, a->d, c->d);
		return;
	case FI_FLOAT_COMPLEX:
		amo_float_complex(op, &v->fc, a->fc, c->fc);
		return;
	case FI_DOUBLE_COMPLEX:
		amo_double_complex(op, &v->dc, a->dc, c->dc);
		return;
	case FI_LONG_DOUBLE_COMPLEX:
		amo_long_double_complex(op, &v->ldc, a->ldc, c->ldc);
		return;
	default:
		amo_long_double(op, &v->ld, a->ld, c->ld);
		return;
	}
}

/* Reads an element. step: equal to size if the element is aligned, otherwise
 * 0. */
static void amo_load(const void *addr, size_t step, size_t size,
		     union amo_number *n)
{
	switch (step) {
	case 1:
		n->u8 = __atomic_load_n((const uint8_t *)addr,
					__ATOMIC_SEQ_CST);
		return;
	case 2:
		n->u16 = __atomic_load_n((const uint16_t *)addr,
					 __ATOMIC_SEQ_CST);
		return;
	case 4:
		n->u32 = __atomic_load_n((const uint32_t *)addr,
					 __ATOMIC_SEQ_CST);
		return;
	case 8:
		n->u64 = __atomic_load_n((const uint64_t *)addr,
					 __ATOMIC_SEQ_CST);
		return;
	default:
		memcpy(n, addr, size);
		return;
	}
}

/* Stores *to in the element and returns true if its value is still *old.
 * Otherwise sets *old to the present value and returns false. */
static bool amo_replace(void *addr, size_t step, size_t size,
			union amo_number *old, const union amo_number *to)
{
	switch (step) {
	case 1:
		return __atomic_compare_exchange_n((uint8_t *)addr, &old->u8,
						   to->u8, false,
						   __ATOMIC_SEQ_CST,
						   __ATOMIC_SEQ_CST);
	case 2:
		return __atomic_compare_exchange_n((uint16_t *)addr, &old->u16,
						   to->u16, false,
						   __ATOMIC_SEQ_CST,
						   __ATOMIC_SEQ_CST);
	case 4:
		return __atomic_compare_exchange_n((uint32_t *)addr, &old->u32,
						   to->u32, false,
						   __ATOMIC_SEQ_CST,
						   __ATOMIC_SEQ_CST);
	case 8:
		return __atomic_compare_exchange_n((uint64_t *)addr, &old->u64,
						   to->u64, false,
						   __ATOMIC_SEQ_CST,
						   __ATOMIC_SEQ_CST);
	default:
		memcpy(addr, to, size);
		return true;
	}
}

void moonrail_amo_run(enum fi_datatype type, enum fi_op op, void *addr,
		      const void *operand, const void *compare, void *old)
{
	union amo_number was, now, a, c;
	size_t size = amo_sizes[type], step;

	/* accesses to aligned elements are atomic; accesses to other elements
	 * are atomic only because of the lock that the caller holds */
	step = (uintptr_t)addr % size ? 0 : size;
	memset(&was, 0, sizeof(was));
	memset(&a, 0, sizeof(a));
	memset(&c, 0, sizeof(c));
	if (op != FI_ATOMIC_READ)
		memcpy(&a, operand, size);
	if (op >= FI_CSWAP)
		memcpy(&c, compare, size);
	amo_load(addr, step, size, &was);
	do {
		now = was;
		amo_apply(type, op, &now, &a, &c);
	} while (op != FI_ATOMIC_READ && memcmp(&now, &was, size) &&
		 !amo_replace(addr, step, size, &was, &now));
	memcpy(old, &was, size);
}
