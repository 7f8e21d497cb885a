import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { readEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { AnchoredEvidence, KeptProof } from '#client/anchored.ts'
import { createSession, type SessionStart } from '#client/session.ts'
import { openSessionFile } from '#src/cli/proxy/session-file.ts'
import { buildAttested } from '../../../attestation/evidence/build-attested.ts'
import { buildCalls, EXCHANGES, SESSION_ID } from '../../../attestation/session/build-session.ts'
import { folderOfTest } from '../../../support/folders.ts'
import { ANCHORED, anchored, neverAnchored, proofOf } from './session-calls.ts'

let folder: string
let path: string
beforeEach(() => {
  folder = folderOfTest()
  path = join(folder, 'run.json')
})

/** The files of a session, without its lock. */
const namesIn = (folder: string) =>
  readdirSync(folder)
    .filter((name) => !name.endsWith('.lock'))
    .toSorted()

const ID = SESSION_ID
const HASHES = ANCHORED.map(({ record }) => record.hash)
/** The first call, which says that it is the last. */
const [LAST_AND_FIRST] = buildCalls({ exchanges: EXCHANGES.slice(0, 1) })
const sessionProof = (n: number) => proofOf(ANCHORED[n])

/** The calls in the file, each with its anchor. */
function readCalls(): readonly JsonObject[] {
  const calls = readEvidenceLines(readFileSync(path)) ?? []
  expect(calls.map((call) => call.block)).not.toContain(null)
  return calls
}

/** A session that makes no calls. */
const createSessionAt = (start: SessionStart | undefined) =>
  createSession(start === undefined ? {} : { start }, {
    open: () => () => Promise.reject(new Error('expected no call')),
    anchored: neverAnchored,
  })

describe('a session that stops and starts again', () => {
  it('the calls stay beside a whole file until the session has had its last call', async () => {
    const open = () => openSessionFile(path, { anchored })
    const settled = { waiting: 0 }

    const first = await open()
    await first.keep(sessionProof(0))
    first.complete('key', { id: ID, unanswered: [] })
    expect(await first.close()).toEqual({ ...settled, isOpen: true })
    expect(readCalls()).toHaveLength(1)

    const second = await open()
    expect(second.start).toEqual({ id: ID, n: 1, previous: HASHES[0] })
    expect(await second.close()).toEqual({ ...settled, waiting: 1, isOpen: true })
    expect(readCalls()).toHaveLength(1)

    const third = await open()
    await third.keep(sessionProof(1))
    await third.keep(sessionProof(2))
    third.complete('key', { id: ID, unanswered: [] })
    expect(await third.close()).toEqual({ ...settled, isOpen: false })
    expect(readCalls()).toHaveLength(3)
    expect(existsSync(`${path}.calls`)).toBe(false)
    await expect(open()).rejects.toThrow('exists: name a new file for the session')
  })

  it('the file of an earlier run stays until the new one has its calls', async () => {
    let left = 3
    const orBusy = async (kept: KeptProof) => {
      left -= 1
      if (left < 0) throw new Error('busy')
      return anchored(kept)
    }
    const open = () => openSessionFile(path, { anchored: orBusy })
    const countCalls = () => readCalls().length

    const first = await open()
    for (const n of [0, 1]) await first.keep(sessionProof(n))
    first.complete('key', { id: ID, unanswered: [] })
    await first.close()
    expect(countCalls()).toBe(2)

    const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    const second = await open()
    second.complete('key', { id: ID, unanswered: [] })
    expect(await second.close()).toMatchObject({ waiting: 1 })
    said.mockRestore()
    expect(countCalls()).toBe(2)
    expect(namesIn(folder)).toEqual(['run.json', 'run.json.calls'])

    left = 3
    const third = await open()
    await third.keep(sessionProof(2))
    third.complete('key', { id: ID, unanswered: [] })
    expect(await third.close()).toMatchObject({ waiting: 0, isOpen: false })
    expect(countCalls()).toBe(3)
    expect(namesIn(folder)).toEqual(['run.json'])
  })

  const NOTARY = `0x${'cd'.repeat(20)}`
  const lostAt = (n: number, times: number) => [{ n, notary: NOTARY, times }]

  it('requests without an answer and the owner outlast a crash, and are in the file', async () => {
    const open = () => openSessionFile(path, { anchored })
    const owner = 'ef'.repeat(32)
    const first = await open()
    await first.keepLost(ID, { call: '01'.repeat(8), unanswered: lostAt(0, 1) })
    await first.keepLost(ID, { call: '02'.repeat(8), unanswered: lostAt(0, 1) })
    await first.keepLost(ID, { call: '02'.repeat(8), unanswered: lostAt(0, 2) })
    expect(await first.close()).toMatchObject({ isOpen: true })

    const second = await open()
    expect(second).toMatchObject({ start: { id: ID, n: 0, previous: null }, owner: null })
    await second.keepOwner(ID, owner)
    await second.keep(sessionProof(0))
    await second.keepLost(ID, { call: '01'.repeat(8), unanswered: [] })
    await second.keepLost(ID, { call: '03'.repeat(8), unanswered: lostAt(1, 1) })
    await second.close()

    const third = await open()
    const unanswered = [...lostAt(0, 2), ...lostAt(1, 1)]
    expect(third.owner).toBe(owner)
    expect(third.start).toEqual({ id: ID, n: 1, previous: HASHES[0], unanswered })
    for (const n of [1, 2]) await third.keep(sessionProof(n))
    third.complete('key', createSessionAt(third.start))
    expect(await third.close()).toMatchObject({ waiting: 0, isOpen: false })
    expect(readCalls().map((call) => call.unanswered)).toEqual([undefined, undefined, unanswered])
  })

  it.each([
    ['twice', [sessionProof(0), sessionProof(0)]],
    ['after a missing one', [sessionProof(0), sessionProof(2)]],
    ['after the last', [proofOf(LAST_AND_FIRST), sessionProof(1)]],
  ])('a line with a call %s stops the proxy', async (_, proofs) => {
    writeFileSync(`${path}.calls`, proofs.map((proof) => proof.save()).join(''))
    const opening = openSessionFile(path, { anchored: neverAnchored })
    await expect(opening).rejects.toThrow(/^line 2 of .* the next one of the session/)
  })

  const lostLine = (more: object) =>
    JSON.stringify({ format: 'affidavit-session-lost', version: 1, id: ID, ...more })
  const call = '01'.repeat(8)
  it.each([
    ['of another session', lostLine({ id: 'cd'.repeat(16), call }), 'that of the lines before'],
    ['without its call', lostLine({}), 'an object of format'],
    ['with one more member', lostLine({ call, more: 1 }), 'an object of format'],
    ['with a short call', lostLine({ call: '01' }), '16 lower-case hex digits'],
    ['with no requests', lostLine({ call, unanswered: [] }), 'an array of 1 to 20000 entries'],
    ['of no request', lostLine({ call, unanswered: lostAt(0, 0) }), 'a count from 1'],
    [
      'of another version',
      lostLine({ call, version: 2 }),
      'expected format to be affidavit-evidence',
    ],
    [
      'with an owner that is no digest',
      JSON.stringify({ format: 'affidavit-session-owner', version: 1, id: ID, owner: 'afd_key' }),
      '64 lower-case hex digits',
    ],
  ])('a line %s stops the proxy', async (_, line, message) => {
    const lines = [lostLine({ call, unanswered: lostAt(0, 1) }), line].map((one) => `${one}\n`)
    writeFileSync(`${path}.calls`, lines.join(''))
    const opening = openSessionFile(path, { anchored: neverAnchored })
    await expect(opening).rejects.toThrow(/^line 2 of /)
    await expect(openSessionFile(path, { anchored: neverAnchored })).rejects.toThrow(message)
  })

  it('a file that is there before the first call is not overwritten', async () => {
    const file = await openSessionFile(path, { anchored: neverAnchored })
    await file.keepLost(ID, { call, unanswered: lostAt(0, 1) })
    await file.close()
    writeFileSync(path, 'other')
    const opening = openSessionFile(path, { anchored: neverAnchored })
    await expect(opening).rejects.toThrow('exists: name a new file for the session')
    expect(readFileSync(path, 'utf8')).toBe('other')
  })

  it("the file has each provider's document once, also when requests are added to its last call", async () => {
    const { bundle } = buildAttested()
    const { provider_evidence: part } = bundle
    const withDocument = async (kept: KeptProof): Promise<AnchoredEvidence> => {
      const { evidence, ...rest } = await anchored(kept)
      return { ...rest, evidence: { ...evidence, ...(part ? { provider_evidence: part } : {}) } }
    }
    const file = await openSessionFile(path, { anchored: withDocument })
    for (const n of [0, 1, 2]) await file.keep(sessionProof(n))
    file.complete('key', { id: ID, unanswered: lostAt(2, 1) })
    await file.close()
    const text = readFileSync(path, 'utf8')
    expect(text.split(part?.document ?? '')).toHaveLength(2)
    expect(readCalls().map((call) => call.provider_evidence)).toEqual([part, part, part])
    expect(readCalls()[2]?.unanswered).toEqual(lostAt(2, 1))
  })

  it('a proxy waits until another one has finished with the file', async () => {
    const open = () => openSessionFile(path, { anchored })
    const first = await open()
    await first.keep(sessionProof(0))
    const order: string[] = []
    const second = open().then((file) => {
      order.push('opened')
      return file
    })
    // A file that no process has open takes as long to open as the second would without a lock.
    const free = await openSessionFile(join(folder, 'free.json'), { anchored: neverAnchored })
    await free.close()
    expect(order).toEqual([])
    first.complete('key', { id: ID, unanswered: [] })
    await first.close()
    order.push('closed')
    const next = await second
    expect(order).toEqual(['closed', 'opened'])
    expect(next.start).toMatchObject({ n: 1 })
    await next.close()
  })

  it('kept calls that cannot be read stop the proxy, and are not taken for none', async () => {
    mkdirSync(join(folder, 'run.json.calls'))
    const opening = openSessionFile(path, { anchored: neverAnchored })
    await expect(opening).rejects.toThrow('cannot read')
  })

  it('a session without calls leaves no file', async () => {
    const file = await openSessionFile(path, { anchored: neverAnchored })
    expect(await file.close()).toEqual({ waiting: 0, isOpen: false })
    expect(namesIn(folder)).toEqual([])
  })
})
