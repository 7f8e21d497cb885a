/** An entry of an archive as its header says. */
export type ArchiveEntry = {
  readonly path: string
  readonly mode: number
  readonly inode: number
  readonly owner: readonly [number, number]
  readonly time: number
  readonly device: readonly [number, number]
  readonly data: Uint8Array
}

/**
 * Reads a cpio "newc" archive to its trailer, by the format's description and not by our writer.
 */
export function readCpio(bytes: Uint8Array): readonly ArchiveEntry[] {
  const text = (start: number, end: number) =>
    Buffer.from(bytes.subarray(start, end)).toString('latin1')
  const entries: ArchiveEntry[] = []
  for (let at = 0; ; ) {
    const field = (index: number) =>
      Number.parseInt(text(at + 6 + 8 * index, at + 14 + 8 * index), 16)
    if (text(at, at + 6) !== '070701') throw new Error(`no header at ${at}`)
    const name = at + 110
    const data = (name + field(11) + 3) & ~3
    const end = data + field(6)
    const path = Buffer.from(bytes.subarray(name, name + field(11) - 1)).toString('utf8')
    if (path === 'TRAILER!!!') return entries
    entries.push({
      path,
      inode: field(0),
      mode: field(1),
      owner: [field(2), field(3)],
      time: field(5),
      device: [field(9), field(10)],
      data: bytes.slice(data, end),
    })
    at = (end + 3) & ~3
  }
}
