import { spawnSync } from 'node:child_process'
import { mkdtemp, open, rm, rmdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A file system of its own, in memory, that can be filled to the last byte. */
export type SmallDisk = {
  readonly path: string
  /** Fills it until nothing more can be written. */
  fill(): Promise<void>
  free(): Promise<void>
  remove(): Promise<void>
}

/** Makes one of so many MiB; null where this process may not mount (it takes root on Linux). */
export async function mountSmallDisk(sizeMiB: number): Promise<SmallDisk | null> {
  const path = await mkdtemp(join(tmpdir(), 'affidavit-disk-'))
  const mount = ['-t', 'tmpfs', '-o', `size=${sizeMiB}m,mode=755`, 'tmpfs', path]
  if (spawnSync('mount', mount, { stdio: 'ignore' }).status !== 0) {
    await rmdir(path)
    return null
  }
  const filler = join(path, 'filler')
  const unmount = () => void spawnSync('umount', ['--lazy', path], { stdio: 'ignore' })
  process.once('exit', unmount)
  return {
    path,
    async fill() {
      const file = await open(filler, 'a')
      try {
        for (const bytes of [2 ** 20, 2 ** 12, 1]) await writeAll(file, Buffer.alloc(bytes))
      } finally {
        await file.close()
      }
    },
    free: () => rm(filler, { force: true }),
    async remove() {
      process.off('exit', unmount)
      unmount()
      await rmdir(path)
    },
  }
}

async function writeAll(
  file: { write(part: Buffer): Promise<unknown> },
  part: Buffer,
): Promise<void> {
  try {
    for (;;) await file.write(part)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  }
}
