import { rename, rm, writeFile } from 'node:fs/promises'

/**
 * Writes the content to the file `draft` in the same folder, then renames it. So a reader always
 * finds the complete old or new content, even after a crash. `mode` applies to a new file.
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
