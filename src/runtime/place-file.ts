import { rename, rm, writeFile } from 'node:fs/promises'

/**
 * Writes a file as `draft`, beside its place, and moves it there: a reader finds the old content or
 * the new content at any moment, also after a crash, and never a part. `mode` is for a new file.
 */
export async function placeFile(
  path: string,
  content: Uint8Array | string,
  { draft, mode = 0o666 }: { readonly draft: string; readonly mode?: number },
): Promise<void> {
  try {
    await writeFile(draft, content, { mode, flush: true })
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}
