import { mkdtempSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { completeRecord } from '#attestation/compare-exchange.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { parseSavedProof } from '#attestation/saved-proof.ts'
import { connect } from '#client/index.ts'
import { BOOT_CONFIGURATION, digestOf } from '../../../attestation/evidence/build-evidence.ts'
import {
  buildCalls,
  EXCHANGES,
  type Exchange,
  SESSION_ID,
  sessionOf,
} from '../../../attestation/session/build-session.ts'
import { readExpectedService } from '../../../support/expected-service.ts'
import { PCR_VALUES, standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'
import { useAffidavit } from '../../../support/use-affidavit.ts'

const folder = mkdtempSync(join(tmpdir(), 'affidavit-session-bundle-'))
const root = join(folder, 'root.der')
const expected = [
  '--root',
  root,
  '--configuration',
  encodeHex(digestOf(BOOT_CONFIGURATION)),
  ...[0, 1, 2].flatMap((at) => [
    '--pcr',
    `${at}=${encodeHex(PCR_VALUES.get(at) ?? new Uint8Array())}`,
  ]),
]
const CALLS = buildCalls()

beforeAll(() => {
  writeFileSync(root, standardChain.cabundle[0] ?? new Uint8Array())
})
afterAll(() => rm(folder, { recursive: true }))

let files = 0
function save(session: JsonObject): string {
  const path = join(folder, `session-${++files}.json`)
  writeFileSync(path, JSON.stringify(session))
  return path
}
const verify = (calls: readonly unknown[], ...words: readonly string[]) =>
  runCommand('verify', save(sessionOf(calls)), ...expected, ...words)

describe('a session bundle', () => {
  it('a whole session is verified, with a line for each call, the timeline and the checks', async () => {
    const { code, stdout } = await verify(CALLS, '--require', 'verified')
    expect(code).toBe(0)
    const lines = stdout.split('\n')
    expect(lines[0]).toBe('VERIFIED: nothing failed, and everything that is needed was checked.')
    expect(lines[1]).toContain('These are 4 calls of one session, signed by one notary')
    expect(lines[1]).toContain('what a tool did: its answer is what the caller sent')
    expect(lines.filter((line) => /^ {2}call \d+ +VERIFIED/.test(line))).toHaveLength(4)
    expect(stdout).toContain('It builds on the answer of call 1.')
    expect(stdout).toContain('  calls        | locate({"image":1})\n  calls        | clock({})\n')
    expect(stdout).toContain('  tool         | clock: 12:00\n')
    expect(stdout).toContain('  passed       signed end           the last call says')
  })

  it('a session is given as JSON for programs, its whole timeline included', async () => {
    const { code, stdout } = await verify(CALLS, '--json')
    const { ok, verdict, session } = JSON.parse(stdout)
    expect([code, ok, verdict, session.id]).toEqual([0, true, 'verified', SESSION_ID])
    expect(session.calls.map(({ hash }: { hash: string }) => hash)).toEqual(
      CALLS.map(({ record }) => record.hash),
    )
    expect(session.calls[3].relation).toMatchObject({ kind: 'continues', call: 1 })
    expect(session.timeline).toContainEqual({
      call: 1,
      kind: 'returned',
      name: 'clock',
      text: '12:00',
    })
  })

  it('a session without a call in the middle fails, and shows no step of the run', async () => {
    const { code, stdout } = await verify(CALLS.toSpliced(1, 1))
    expect(code).toBe(1)
    expect(stdout).toMatch(/^INVALID: failed at none missing, previous hash\.\n/)
    expect(stdout).toContain('the call with number 1 is missing')
    expect(stdout).not.toContain('timeline')
    expect(stdout).not.toContain('Rome')
  })

  it('a session that was cut is consistent, which --require verified refuses', async () => {
    const cut = CALLS.slice(0, 2)
    const { code, stdout } = await verify(cut)
    expect([code, stdout.split('\n')[0]]).toEqual([
      0,
      'CONSISTENT: nothing failed, but this was not checked: signed end.',
    ])
    expect((await verify(cut, '--require', 'verified')).code).toBe(1)
  })

  it('a call that fails is named in its own line and by its check', async () => {
    const calls = buildCalls({ evidence: (at) => (at === 1 ? { stored: { created_at: 1 } } : {}) })
    const { code, stdout } = await verify(calls)
    expect(code).toBe(1)
    expect(stdout).toMatch(/^INVALID: failed at evidence of calls\.\n/)
    expect(stdout).toContain('  call 1    INVALID: failed at created_at')
    expect(stdout).toContain('  FAILED       created_at')
  })

  it('a session whose root is not trusted is not determined, and brings the hint at the root', async () => {
    const { code, stdout } = await runCommand('verify', save(sessionOf(CALLS)))
    expect(code).toBe(1)
    expect(stdout).toMatch(/^NOT DETERMINED/)
    expect(stdout.split('DATA_DIR/nsm/root.crt.pem')).toHaveLength(2)
  })

  it('text from a call moves no cursor and makes no line of the report', async () => {
    const name = '\u001b[2J\u202eevil\n  passed  fake'
    const [first] = EXCHANGES as [Exchange]
    const tool = { id: 'c', type: 'function', function: { name, arguments: name } }
    const message = { role: 'assistant', content: name, tool_calls: [tool] }
    const response = { ...first.response, choices: [{ index: 0, message, finish_reason: 'stop' }] }
    const messages: readonly JsonObject[] = [
      { role: name, content: name },
      message,
      { role: 'tool', tool_call_id: 'c', content: name },
    ]
    const { stdout } = await verify(
      buildCalls({
        exchanges: [
          { request: { model: 'demo/echo', messages: [] }, response },
          { request: { model: 'demo/echo', messages }, response },
        ],
      }),
    )
    const controls = [...stdout].filter((one) => /[\p{Cc}\p{Cf}]/u.test(one) && one !== '\n')
    expect(controls).toEqual([])
    const fakes = stdout.split('\n').filter((line) => line.includes('fake'))
    expect(fakes.length).toBeGreaterThan(3)
    expect(fakes.filter((line) => !/^ {2}.{12} \| /.test(line))).toEqual([])
  })

  it('a session is compared with no kept call, and another form of it is refused', async () => {
    const kept = await verify(CALLS, '--request', root)
    expect([kept.code, kept.stderr]).toEqual([2, expect.stringContaining('got several')])
    const { code, stdout } = await runCommand('verify', save({ ...sessionOf(CALLS), version: 2 }))
    expect([code, stdout.split('\n')[0]]).toEqual([1, 'INVALID: failed at format.'])
  })
})

describe('a session of a gateway', () => {
  it('the calls of a run that the client made are verified together', async () => {
    const service = await useAffidavit()
    const { connect: options } = await readExpectedService(service)
    const affidavit = await connect({ url: service.url, ...options })
    const messages: JsonObject[] = []
    const calls: JsonObject[] = []
    let previous: string | null = null
    for (const n of [0, 1, 2]) {
      messages.push({ role: 'user', content: `question ${n}` })
      const session = { id: SESSION_ID, n, previous, ...(n === 2 ? { last: true } : {}) }
      const response = await affidavit.fetch(`${affidavit.baseURL}/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${service.apiKey}` },
        body: JSON.stringify({ model: 'demo/echo', messages, affidavit: { session } }),
      })
      const answer = (await response.json()) as { hash: string; choices: { message: JsonObject }[] }
      previous = answer.hash
      messages.push(answer.choices[0]?.message ?? {})
      const proof = affidavit.proofs.get(answer.hash)
      if (proof === undefined) throw new Error('expected a proof')
      const anchored = await affidavit.anchored(proof, { apiKey: service.apiKey })
      const { bundle, ...kept } = parseSavedProof(parseExactJson(Buffer.from(anchored.save())))
      if (bundle === undefined) throw new Error('expected a bundle')
      // The client keeps the content, and fetches the evidence without it.
      calls.push({ ...bundle, record: completeRecord(bundle.record as JsonObject, kept) })
    }
    const words = ['--expect', service.expectFile, '--rpc', service.rpcUrl, '--require', 'verified']
    const { code, stdout } = await runCommand('verify', save(sessionOf(calls)), ...words)
    expect([code, stdout.split('\n')[0]]).toEqual([0, expect.stringMatching(/^VERIFIED/)])
    expect(stdout).toContain('3 answers in 3 requests are of earlier calls')
    const dropped = await runCommand('verify', save(sessionOf(calls.toSpliced(1, 1))), ...words)
    expect(dropped.code).toBe(1)
  })
})
