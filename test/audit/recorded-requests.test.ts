import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { openRecordedRequests, WrittenRequestsForm } from '#audit/recorded-requests.ts'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { TEST_KEY } from '../support/equivocating-server.ts'
import { openStage, type Stage } from './stage.ts'

const DEMANDS = { nonce: 'ab'.repeat(32) }
const CHECK = 'requests in one log'

let stage: Stage
/** Logs of two enclaves, which both made the first two of three calls. */
let first: BuiltLog
let second: BuiltLog
let trust: readonly string[]
let state: string
let files = 0

const build = async (
  options: Partial<Parameters<typeof buildLog>[1]> = {},
  notary = first.notary,
) =>
  buildLog(notary, {
    batches: [2],
    demands: DEMANDS,
    anchoring: { chain: null, nonce: 0 },
    ...options,
  })

beforeAll(async () => {
  stage = await openStage()
  first = await build({ batches: [2, 1] }, await createTestNotary())
  second = await build({}, await createTestNotary())
  trust = [...(await stage.trust(first)), ...(await stage.trust(second))]
})
afterAll(() => stage.close())
beforeEach(() => {
  state = join(stage.folder, `requests-${files++}.json`)
})

function audit(logs: readonly BuiltLog[], ...words: readonly string[]) {
  stage.server.serve(logs)
  return stage.audit(...trust, '--key', TEST_KEY, ...words)
}

const hidden = (log: BuiltLog): BuiltLog => ({
  ...log,
  records: log.records.map((record) => ({
    ...record,
    request: null,
    response: null,
    redacted: true,
    usage: null,
    erased: { at: 1_795_000_000, by: 'operator', reason: 'asked for' },
  })),
})

/** A request in the state file, in base64: 16 bytes of its hash, and its record's index. */
function entryAt(index: number): string {
  const entry = Buffer.alloc(24)
  entry.writeDoubleBE(index, 16)
  return entry.toString('base64')
}

describe('affidavit audit, of one request in two logs', () => {
  it('an audit finds a call that two enclaves made, and names both records', async () => {
    const { code, findings, stdout } = await audit([second, first])
    expect(code).toBe(1)
    expect(findings).toMatchObject(
      [0, 1].map((index) => ({ code: 'request_in_two_logs', where: `record ${index}` })),
    )
    const [record = {}] = first.records
    const { request_hash: hash } = record.receipt as JsonObject
    for (const part of [hash, first.notary.account.notary, second.notary.account.notary])
      expect(findings[0]?.message).toContain(part)
    expect(findings[0]?.message).not.toContain('not shown')
    expect(stdout).toContain('FOUND: 2 made more than once.')
  })

  it('an audit finds a call that two enclaves made when the gateway shows no content, and says what that leaves open', async () => {
    const { codes, findings } = await audit([hidden(second), hidden(first)])
    expect(codes).toEqual(['request_in_two_logs'])
    expect(findings[0]?.message).toContain('equal requests without a nonce')
  })

  it('an audit accepts equal requests without a nonce in two logs, and calls that name their enclave', async () => {
    const plain = { demands: {} }
    expect(await audit([await build(plain, second.notary), await build(plain)])).toMatchObject({
      code: 0,
      codes: [],
      outcomes: { [CHECK]: 'not checked' },
    })
    const named = await Promise.all(
      [second.notary, first.notary].map((notary) =>
        build({ demands: { ...DEMANDS, notary: notary.account.notary } }, notary),
      ),
    )
    expect(await audit(named)).toMatchObject({ codes: [], outcomes: { [CHECK]: 'passed' } })
  })

  it('recorded requests accept a request twice in one log, where its enclave counted it', () => {
    const requests = openRecordedRequests()
    const place = { notary: 'one', index: 0 }
    expect(requests.record('cd'.repeat(32), place)).toBe(null)
    expect(requests.record('cd'.repeat(32), { ...place, index: 1 })).toBe(null)
    expect(requests.record('cd'.repeat(32), { notary: 'other', index: 1 })).toEqual(place)
  })

  it('an audit compares with the requests of earlier runs, and keeps what it found', async () => {
    const keep = ['--state', state]
    expect(await audit([first], ...keep)).toMatchObject({ code: 0, codes: [] })
    const found = await audit([second, first], ...keep)
    expect([found.code, found.codes]).toEqual([1, ['request_in_two_logs']])
    const again = await audit([second, first], ...keep)
    expect(again.code).toBe(1)
    expect(again.findings.map(({ where, earlier }) => [where, earlier])).toEqual([
      ['record 0', true],
      ['record 1', true],
    ])
  })

  it('an audit that was cut off between two logs finds the call in its next run', async () => {
    stage.server.serve([first, second], (question, honest) =>
      question.notary === second.notary.account.notary && question.resource === 'log/records'
        ? (response) => response.writeHead(500).end('{}')
        : honest(),
    )
    const words = [...trust, '--key', TEST_KEY, '--state', state]
    expect((await stage.audit(...words)).codes).toEqual(['answer_refused'])
    expect((await audit([first, second], '--state', state)).codes).toEqual(['request_in_two_logs'])
  })

  it('an audit does not count the check as passed after a state file without requests, or without earlier records', async () => {
    await audit([first], '--state', state)
    const { requests: _, ...older } = JSON.parse(await readFile(state, 'utf8'))
    await writeFile(state, JSON.stringify(older))
    expect((await audit([second, first], '--state', state)).outcomes[CHECK]).toBe('not checked')
    expect((await audit([first], '--from', '1')).outcomes[CHECK]).toBe('not checked')
  })

  it.each(['AA', '?', entryAt(Number.NaN)])(
    'an audit refuses a state with the requests %j',
    async (entries) => {
      await audit([first], '--state', state)
      const written = JSON.parse(await readFile(state, 'utf8'))
      written.requests.logs[first.notary.account.notary] = entries
      await writeFile(state, JSON.stringify(written))
      expect(await audit([first], '--state', state)).toMatchObject({
        code: 2,
        stderr: expect.stringMatching('expected (whole )?requests'),
      })
    },
  )
})

it.each([-1, 0.5, 2 ** 53])('recorded requests with the index %d are refused', (index) => {
  const formOf = (one: number) => ({
    isCut: false,
    logs: { [`0x${'a'.repeat(40)}`]: entryAt(one) },
  })
  expect(WrittenRequestsForm.safeParse(formOf(1)).success).toBe(true)
  expect(WrittenRequestsForm.safeParse(formOf(index)).success).toBe(false)
})

it('recorded requests forget the oldest beyond their limit, and say so after a restart', () => {
  const hashOf = (at: number) => at.toString(16).padStart(32, '0').padEnd(64, 'f')
  const requests = openRecordedRequests(undefined, 3)
  const notary = `0x${'a'.repeat(40)}`
  for (let at = 0; at < 3; at++) requests.record(hashOf(at), { notary, index: at })
  expect(requests.isCut()).toBe(false)
  requests.record(hashOf(3), { notary, index: 2 ** 40 })
  const written = JSON.parse(JSON.stringify(WrittenRequestsForm.encode(requests.write())))
  const restored = openRecordedRequests(WrittenRequestsForm.parse(written), 10)
  expect(restored.isCut()).toBe(true)
  expect(restored.record(hashOf(0), { notary: 'other', index: 0 })).toBe(null)
  expect(restored.record(hashOf(3), { notary: 'other', index: 0 })).toEqual({
    notary,
    index: 2 ** 40,
  })
})
