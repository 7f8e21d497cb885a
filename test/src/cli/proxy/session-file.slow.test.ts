import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest'
import type { AnchoredEvidence } from '#client/anchored.ts'
import type { Proof } from '#client/proof.ts'
import { openSessionFile } from '#src/cli/proxy/session-file.ts'
import { mountSmallDisk } from '../../../faults/small-disk.ts'
import { needNo } from '../../../support/needs.ts'

const disk = await mountSmallDisk(1)
const DISK = needNo(disk === null ? 'the right to mount' : null)
afterAll(() => disk?.remove())
afterEach(() => {
  const path = disk?.path
  if (path !== undefined)
    for (const name of readdirSync(path)) rmSync(join(path, name), { recursive: true })
})

/** The part of a proof that the file keeps. */
const proofOf = (hash: string, line: string) =>
  ({ hash, request: {}, answer: {}, unanswered: [], save: () => `${line}\n` }) as unknown as Proof

/** The evidence of a call. */
const anchoredAs = (text: string) =>
  ({ text, bundle: { record: { response: {} } } }) as unknown as AnchoredEvidence

const neverAnchored = () => Promise.reject(new Error('expected no call of anchored'))

describe.runIf(DISK.isMet)(DISK.title('a session on a full disk'), () => {
  it('a call that did not fit leaves no part of its line, so that the next call is readable', async () => {
    const path = join(disk?.path ?? '', 'lines.json')
    const file = await openSessionFile(path, { anchored: neverAnchored })
    await file.keep(proofOf('a', '"first"'))
    await disk?.fill()
    const filler = join(disk?.path ?? '', 'filler')
    truncateSync(filler, statSync(filler).size - 8_192)
    const long = proofOf('b', JSON.stringify('x'.repeat(100_000)))
    await expect(file.keep(long)).rejects.toMatchObject({ code: 'ENOSPC' })
    await disk?.free()
    await file.keep(proofOf('c', '"third"'))
    expect(readFileSync(`${path}.calls`, 'utf8')).toBe('"first"\n"third"\n')
    await file.close()
  })

  it('a bundle whose first write failed is whole after it is completed again', async () => {
    const path = join(disk?.path ?? '', 'again.json')
    const file = await openSessionFile(path, {
      anchored: async () => anchoredAs('{}'),
    })
    for (const hash of ['a', 'b']) await file.keep(proofOf(hash, JSON.stringify(hash)))
    await disk?.fill()
    const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    file.complete('key', { id: 'ab', unanswered: [] })
    await expect.poll(() => said.mock.calls.join()).toContain('ENOSPC')
    said.mockRestore()
    await disk?.free()
    file.complete('key', { id: 'ab', unanswered: [] })
    expect(await file.close()).toMatchObject({ waiting: 0, unanswered: 0 })
    expect(JSON.parse(readFileSync(path, 'utf8')).calls).toEqual([{}, {}])
  })
})

it('a session takes no call with which its bundle could be too large to be read', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'affidavit-session-'))
  const file = await openSessionFile(join(folder, 'run.json'), { anchored: neverAnchored })
  const large = proofOf('a', 'x'.repeat(32 * 1024 * 1024))
  let kept = 0
  for (; !file.isFull(); kept++) await file.keep(large)
  expect(kept).toBe(7)
  await file.close()
  rmSync(folder, { recursive: true })
})
