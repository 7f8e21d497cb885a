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
import { readEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import type { Proof } from '#client/proof.ts'
import { openSessionFile } from '#src/cli/proxy/session-file.ts'
import { buildCalls, EXCHANGES, SESSION_ID } from '../../../attestation/session/build-session.ts'
import { mountSmallDisk } from '../../../faults/small-disk.ts'
import { needNo } from '../../../support/needs.ts'
import { ANCHORED, anchored, neverAnchored, proofOf } from './session-calls.ts'

const disk = await mountSmallDisk(1)
const DISK = needNo(disk === null ? 'the right to mount' : null)
afterAll(() => disk?.remove())
afterEach(() => {
  const path = disk?.path
  if (path !== undefined)
    for (const name of readdirSync(path)) rmSync(join(path, name), { recursive: true })
})

/** The second call of the session, if its answer were of 100,000 bytes more. */
function longCall(): Proof {
  const [first, second] = EXCHANGES
  if (first === undefined || second === undefined) throw new Error('expected two calls')
  const response = { ...second.response, more: 'x'.repeat(100_000) }
  return proofOf(buildCalls({ exchanges: [first, { ...second, response }] })[1])
}

const WRITTEN = { id: SESSION_ID, unanswered: [] }

/** Resolves when the evidence of a call did not fit. */
async function awaitFull(run: () => void): Promise<void> {
  const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  run()
  await expect.poll(() => said.mock.calls.join()).toContain('ENOSPC')
  said.mockRestore()
}

const readCalls = (path: string) => readEvidenceLines(readFileSync(path)) ?? []

describe.runIf(DISK.isMet)(DISK.title('a session on a full disk'), () => {
  it('a call that did not fit leaves no part of its line, so that the next call is readable', async () => {
    const path = join(disk?.path ?? '', 'lines.json')
    const file = await openSessionFile(path, { anchored: neverAnchored })
    await file.keep(proofOf(ANCHORED[0]))
    await disk?.fill()
    const filler = join(disk?.path ?? '', 'filler')
    truncateSync(filler, statSync(filler).size - 8_192)
    await expect(file.keep(longCall())).rejects.toMatchObject({ code: 'ENOSPC' })
    await disk?.free()
    await file.keep(proofOf(ANCHORED[1]))
    await file.close()
    const next = await openSessionFile(path, { anchored: neverAnchored })
    expect(next.start).toEqual({ id: SESSION_ID, n: 2, previous: ANCHORED[1]?.record.hash })
    await next.close()
  })

  it('a file whose first write failed is whole after it is completed again', async () => {
    const path = join(disk?.path ?? '', 'again.json')
    const file = await openSessionFile(path, { anchored })
    for (const call of ANCHORED) await file.keep(proofOf(call))
    await disk?.fill()
    await awaitFull(() => file.complete('key', WRITTEN))
    await disk?.free()
    file.complete('key', WRITTEN)
    expect(await file.close()).toEqual({ waiting: 0, isOpen: false })
    expect(readCalls(path)).toEqual(JSON.parse(JSON.stringify(ANCHORED)))
  })

  it('a file whose last write failed has each call before it once, with the requests without an answer', async () => {
    const path = join(disk?.path ?? '', 'once.json')
    const unanswered = [{ n: 1, notary: `0x${'cd'.repeat(20)}`, times: 1 }]
    const second = Promise.withResolvers<void>()
    const file = await openSessionFile(path, {
      async anchored(call) {
        if ((call as Proof).evidence.record.hash !== ANCHORED[0]?.record.hash) await second.promise
        return anchored(call as Proof)
      },
    })
    for (const call of ANCHORED.slice(0, 2)) await file.keep(proofOf(call))
    file.complete('key', { ...WRITTEN, unanswered })
    await expect.poll(() => existsSync(path) && readCalls(path).length).toBe(1)
    await disk?.fill()
    await awaitFull(second.resolve)
    await disk?.free()
    expect(await file.close()).toEqual({ waiting: 1, isOpen: true })
    expect(readCalls(path)).toEqual([{ ...JSON.parse(JSON.stringify(ANCHORED[0])), unanswered }])
  })
})

it('a session takes no call with which its file could be too large to be read', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'affidavit-session-'))
  const file = await openSessionFile(join(folder, 'run.json'), { anchored: neverAnchored })
  const line = 'x'.repeat(32 * 1024 * 1024)
  const large = { ...proofOf(ANCHORED[0]), save: () => line }
  let kept = 0
  for (; !file.isFull(); kept++) await file.keep(large)
  expect(kept).toBe(7)
  await file.close()
  rmSync(folder, { recursive: true })
})
