import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { BOOT_CONFIGURATION, digestOf } from '../../../attestation/evidence/build-evidence.ts'
import {
  buildCalls,
  EXCHANGES,
  type Exchange,
  SESSION_ID,
} from '../../../attestation/session/build-session.ts'
import { folderOfFile, saverIn } from '../../../support/folders.ts'
import { PCR_VALUES, standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'

const folder = folderOfFile()
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

const save = saverIn(folder)

beforeAll(() => save('root.der', standardChain.cabundle[0]))

const linesOf = (calls: readonly unknown[]) =>
  calls.map((call) => `${JSON.stringify(call)}\n`).join('')

const verify = async (calls: readonly unknown[], ...words: readonly string[]) =>
  runCommand('verify', await save('session.json', linesOf(calls)), ...expected, ...words)

describe('the file of a session', () => {
  it('a whole session is verified, with a line for each call, the timeline and the checks', async () => {
    const { code, stdout } = await verify(CALLS)
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
    const other = await verify(CALLS.with(1, { ...CALLS[1], version: 2 } as never))
    expect(other.code).toBe(1)
    expect(other.stdout).toMatch(/^INVALID: failed at evidence of calls/)
  })
})
