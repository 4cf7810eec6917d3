/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_MEMORY_H
#define TEI_API_ENGINE_MEMORY_H

/*
 * Registered memory and the own descriptor.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#include "api/engine_int.h"
#include "meta/tei_meta_desc.h"
#include "prov/rail/tei_rail.h"
#include "util/lock.h"

struct tei_meta_desc;
struct tei_nvmeof;
struct tei_nvmeof_seg;
struct tei_rail_message;
struct tei_topo_where;

/* --- engine_memory.c ----------------------------------------------------- */
/* Frees the table of regions, without unregistering anything. */
void engine_memory_free_all(struct engine *e);

/* Returns the region whose start is addr, or NULL. */
struct engine_region *engine_memory_find(struct engine *e, const void *addr)
	TEI_REQUIRES(e->control);

/* --- engine_nested.c: registrations inside registered buffers ------------ */
/*
 * Returns the region that contains the range, or NULL. A region that another
 * call is registering is ignored, because that call may fail and remove the
 * region. "call" is the number of the calling registration, whose own regions
 * are not ignored.
 */
struct engine_region *engine_nested_outer(struct engine *e, const void *addr,
					  uint64_t length, uint64_t call)
	TEI_REQUIRES(e->control);
/* Adds one reference of a nested registration to the region. */
int engine_nested_add(struct engine *e, struct engine_region *outer,
		      const struct te_registration *what, struct tei_err *err)
	TEI_REQUIRES(e->control);
/*
 * Drops one reference of the nested registration with that range and label.
 * Returns false if there is no such registration. Sets *published to true if
 * the content of the descriptor has changed.
 */
bool engine_nested_drop(struct engine *e, const struct te_registration *what,
			bool *published) TEI_REQUIRES(e->control);
/* Returns the number of references of nested registrations in the region. */
uint64_t engine_nested_count(const struct engine_region *r);
/* Returns true if both labels are equal. NULL and "" both mean that there is no
 * label. */
bool engine_label_equal(const char *a, const char *b);
/* Checks the label of entry i of a public call. Returns 0, or an error code
 * after logging the error. */
int engine_label_check(const char *call, size_t i, const char *label);
/* Frees all nested registrations. */
void engine_nested_free_all(struct engine *e);

/* --- engine_alloc.c ------------------------------------------------------ */
/* Unmaps the memory that te_free has not freed. The memory must no longer be
 * registered. */
void engine_alloc_free_all(struct engine *e);

/* --- engine_desc.c: the content of the own descriptor --------------------- */
/* Builds the descriptor without buffers. Fills *rails with the rails of the
 * descriptor. */
int engine_desc_head(struct engine *e, struct engine_desc_rails *rails,
		     struct tei_meta_desc **out, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Builds the entries of the region for a descriptor that has those rails. The
 * caller frees out->word. */
int engine_desc_collect(struct engine *e,
			const struct engine_desc_rails *rails,
			const struct engine_region *r,
			struct engine_pieces *out, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Adds all listed regions and their labels to the descriptor. listing.lock must
 * be held. */
int engine_desc_buffers(struct engine *e, struct tei_meta_desc *desc,
			struct tei_err *err);

/* --- engine_publish.c: publication of the descriptor ---------------------- */
/* engine_publish_init initializes the own descriptor; engine_publish_fini frees
 * it. */
void engine_publish_init(struct engine *e);
void engine_publish_fini(struct engine *e);
/* Returns true if the engine has published a descriptor. */
bool engine_published(struct engine *e);
/*
 * Updates the own descriptor after the rails have changed: its rails, and the
 * memory keys of all regions. The caller must call engine_publish afterwards,
 * without the control lock.
 */
int engine_republish(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
/*
 * Writes the descriptor to the store and waits for the result. If another
 * process has taken the segment name and report_loss is true, returns an error,
 * which the caller must return to the application; a later call registers the
 * name again. Blocks. No lock may be held.
 */
int engine_publish(struct engine *e, bool report_loss, struct tei_err *err);
/*
 * Publishes the descriptor after memory was registered or unregistered. If the
 * text in the store does not list the buffers but refers peers to the control
 * channel, and the last publication succeeded, a worker thread publishes later
 * and this function returns 0 at once. Otherwise does what engine_publish does.
 */
int engine_publish_regions(struct engine *e, struct tei_err *err);
/* Queues a job that updates the own descriptor and publishes it, because the
 * rails have changed. */
void engine_publish_soon(struct engine *e);
/* Queues a job that publishes the descriptor in the store at due_ns or
 * later. */
void engine_publish_at(struct engine *e, uint64_t due_ns);
/* Returns the current descriptor of this engine with a reference for the
 * caller. Returns NULL before the first publication, or if memory is short. */
struct tei_meta_desc *engine_describe(struct engine *e);

/* --- engine_gpu.c -------------------------------------------------------- */
/*
 * Finds out which GPU the memory belongs to. Sets *device to the number of the
 * GPU, or to -1 for host memory. "said" is the location that the application
 * states. Returns TEI_ERR_INVALID if the memory is somewhere else, and
 * TEI_ERR_NO_DEVICE if the stated location is a GPU and this process has no GPU
 * driver.
 */
int engine_gpu_where(struct engine *e, void *addr, size_t len,
		     const struct tei_topo_where *said, int *device,
		     struct tei_err *err) TEI_REQUIRES(e->control);
/* Allocates zeroed GPU memory, which is not registered. The memory is freed by
 * engine_gpu_free or at the end of the engine. Errors are those of
 * tei_gpu_alloc. */
int engine_gpu_alloc(struct engine *e, int device, size_t len, void **addr,
		     struct tei_err *err);
void engine_gpu_free(struct engine *e, void *addr);
/* engine_gpu_mem_add and engine_gpu_mem_remove call tei_gpu_mem_add and
 * tei_gpu_mem_remove. They return 0 if the GPU module is not open, because no
 * GPU memory was registered so far. */
int engine_gpu_mem_add(struct engine *e, void *addr, uint64_t len,
		       struct tei_err *err);
int engine_gpu_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns);
/* Registers GPU memory on the rails, if all of them accept it. An error is
 * stored in *err and not logged. */
int engine_gpu_direct_add(struct engine *e, const struct engine_region *r,
			  bool remote, struct tei_err *err);
/* Returns true if one side of the request is GPU memory of this process. */
bool engine_gpu_concerns(struct engine *e, const struct transfer_request *r);
/* Returns true if the first byte of the range is in registered GPU memory of
 * this process. */
bool engine_gpu_memory(struct engine *e, uint64_t addr, uint64_t len);

/* --- transport_file.c ------------------------------------------------------
 */
/* Opens the files that the descriptor of a file segment lists, at their paths
 * on this host. Returns NULL if the segment is not a file segment, if the
 * transport is not installed, or if memory is short. Blocks. */
struct tei_nvmeof_seg *engine_files_open(struct engine *e,
					 const struct tei_meta_desc *desc);
/* engine_files_mem_add and engine_files_mem_remove call tei_nvmeof_mem_add and
 * tei_nvmeof_mem_remove. They return 0 if the transport for file segments is
 * not installed. */
int engine_files_mem_add(struct engine *e, void *addr, uint64_t len,
			 const char *location);
int engine_files_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns);
/* Registers GPU memory with cuFile, if cuFile supports that. */
struct engine_region;
void engine_files_gpu_add(struct engine *e, const struct engine_region *r)
	TEI_REQUIRES(e->control);
/* Returns true if cuFile can execute this request from or to GPU memory. */
bool engine_files_take(struct engine *e, const struct transfer_request *r,
		       struct tei_nvmeof_seg *files);

/* --- transport_staging.c ------------------------------------------------- */
/* Creates e->staging. The data plane and the GPU module are passed to it
 * later. */
int engine_staging_open(struct engine *e, struct tei_err *err);
/* Receives a message of GPU staging. This is the callback tei_rail_ops.message;
 * arg is the engine. */
void engine_staging_message(void *arg, struct tei_rail_message *message);
/* Registers the bounce buffers of GPU staging with the transport for file
 * segments, and sets e->nvmeof to ctx. e->control must be held. */
int engine_staging_files(struct engine *e, struct tei_nvmeof *ctx);

#endif /* TEI_API_ENGINE_MEMORY_H */
