import { randomBytes } from 'node:crypto'
import { open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { FILE_CHUNK_BYTES, readFileChunks } from '#src/cli/measure-image.ts'
import { folderOfFile } from '../../support/folders.ts'

const folder = folderOfFile()

describe('readFileChunks', () => {
  it.each([
    0,
    1,
    FILE_CHUNK_BYTES - 1,
    FILE_CHUNK_BYTES,
    FILE_CHUNK_BYTES + 1,
    5 * FILE_CHUNK_BYTES + 7,
  ])('readFileChunks gives the %d bytes of a file', async (length) => {
    const path = join(folder, String(length))
    const bytes = randomBytes(length)
    await writeFile(path, bytes)
    await using file = await open(path)
    const copies: Uint8Array[] = []
    for await (const chunk of readFileChunks(file)) copies.push(chunk.slice())
    expect(Buffer.concat(copies).equals(bytes)).toBe(true)
  })

  it('readFileChunks gives chunks in two pieces of memory only, whatever the size of the file', async () => {
    const path = join(folder, 'memory')
    await writeFile(path, new Uint8Array(9 * FILE_CHUNK_BYTES))
    await using file = await open(path)
    const memory = new Set<ArrayBufferLike>()
    for await (const chunk of readFileChunks(file)) memory.add(chunk.buffer)
    expect(memory.size).toBe(2)
  })
})
