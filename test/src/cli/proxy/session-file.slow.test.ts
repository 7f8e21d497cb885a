import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { writeEvidence } from '#attestation/evidence/create-evidence.ts'
import { readEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import type { AnchoredEvidence, KeptProof } from '#client/anchored.ts'
import type { Proof } from '#client/proof.ts'
import { openSessionFile } from '#src/cli/proxy/session-file.ts'
import { buildCalls, EXCHANGES, SESSION_ID } from '../../../attestation/session/build-session.ts'
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

const ANCHORED = buildCalls({ exchanges: EXCHANGES.slice(0, 2), isOpen: true })

/** A proof of this call, saved as this text. */
const proofOf = (n: number, text = writeEvidence(ANCHORED[n] as EvidenceBundle)) =>
  ({ evidence: ANCHORED[n], save: () => text }) as unknown as Proof

/** The gateway's evidence is what was kept. */
const anchored = async ({ evidence }: KeptProof): Promise<AnchoredEvidence> =>
  ({ evidence }) as AnchoredEvidence

const neverAnchored = () => Promise.reject(new Error('expected no call of anchored'))

describe.runIf(DISK.isMet)(DISK.title('a session on a full disk'), () => {
  it('a call that did not fit leaves no part of its line, so that the next call is readable', async () => {
    const path = join(disk?.path ?? '', 'lines.json')
    const file = await openSessionFile(path, { anchored: neverAnchored })
    await file.keep(proofOf(0, '"first"\n'))
    await disk?.fill()
    freeBytes(8_192)
    const long = proofOf(1, `${JSON.stringify('x'.repeat(100_000))}\n`)
    await expect(file.keep(long)).rejects.toMatchObject({ code: 'ENOSPC' })
    await disk?.free()
    await file.keep(proofOf(1, '"third"\n'))
    expect(readFileSync(`${path}.calls`, 'utf8')).toBe('"first"\n"third"\n')
    await file.close()
  })

  it.each([
    ['first', 0],
    ['second', 1],
  ])(
    'a file whose %s write failed has whole lines, and all after it is completed again',
    async (_, n) => {
      const path = join(disk?.path ?? '', 'again.json')
      const times = Array.from({ length: 1_000 }, () => ({
        notary: `0x${'ab'.repeat(20)}`,
        times: 1,
      }))
      const file = await openSessionFile(path, {
        anchored: async ({ evidence }) =>
          anchored({ evidence: { ...evidence, unanswered: times } }),
      })
      const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
      file.complete('key', { id: SESSION_ID, unanswered: [] })
      for (const before of Array(n).keys()) await file.keep(proofOf(before))
      await expect.poll(() => countLines(path)).toBe(n)
      await disk?.fill()
      freeBytes(16_384 + 4_096)
      await file.keep(proofOf(n))
      await expect.poll(() => said.mock.calls.join()).toContain('ENOSPC')
      expect(countLines(path)).toBe(n)
      said.mockRestore()
      await disk?.free()
      if (n === 0) await file.keep(proofOf(1))
      file.complete('key', { id: SESSION_ID, unanswered: [] })
      expect(await file.close()).toEqual({ waiting: 0, isOpen: true })
      expect(countLines(path)).toBe(n + (n === 0 ? 2 : 1))
    },
  )
})

/** Leaves this much place on the full disk. */
function freeBytes(count: number): void {
  const filler = join(disk?.path ?? '', 'filler')
  truncateSync(filler, statSync(filler).size - count)
}

/** The calls in the file. Throws for a part of a line. */
function countLines(path: string): number {
  if (!existsSync(path) || statSync(path).size === 0) return 0
  return readEvidenceLines(readFileSync(path))?.length ?? 0
}

it('a session takes no call with which its file could be too large to be read', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'affidavit-session-'))
  const file = await openSessionFile(join(folder, 'run.json'), { anchored: neverAnchored })
  const large = proofOf(0, 'x'.repeat(32 * 1024 * 1024))
  let kept = 0
  for (; !file.isFull(); kept++) await file.keep(large)
  expect(kept).toBe(7)
  await file.close()
  rmSync(folder, { recursive: true })
})
