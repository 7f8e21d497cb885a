import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import type { BundleRecord } from '#attestation/evidence/bundle.ts'
import { buildRecord, REQUEST, RESPONSE } from '../../../attestation/build-record.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../../../attestation/evidence/build-evidence.ts'
import { folderOfFile, saverIn } from '../../../support/folders.ts'
import { PCR_VALUES, standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'

const { bundle, chain } = buildEvidence()
const digest = encodeHex(digestOf(BOOT_CONFIGURATION))
const pcrs = [0, 1, 2].flatMap((index) => [
  '--pcr',
  `${index}=${encodeHex(PCR_VALUES.get(index) ?? new Uint8Array())}`,
])

const folder = folderOfFile()
const save = saverIn(folder)
let file: string
let trust: readonly string[]
let endpoint: ScriptedEndpoint
let rpc: string
/** What the chain's endpoint answers; a function of the method. */
let answers: (method: string) => unknown

beforeAll(async () => {
  file = await save('bundle.json', bundle)
  trust = ['--root', await save('root.der', standardChain.cabundle[0] ?? new Uint8Array())]
  endpoint = await startScriptedEndpoint(({ json }) => {
    const reply = (call: { id: unknown; method: string }) => ({
      jsonrpc: '2.0',
      id: call.id,
      result: answers(call.method),
    })
    return Array.isArray(json) ? json.map(reply) : reply(json as { id: unknown; method: string })
  })
  rpc = endpoint.origin
})
afterAll(() => endpoint.stop())

/** A chain that has the bundle's block. */
const honest = (method: string) =>
  ({
    eth_chainId: `0x${chain.chainId.toString(16)}`,
    eth_blockNumber: `0x${chain.newestBlock.toString(16)}`,
    eth_getBlockByNumber: { hash: chain.blockHash },
  })[method]

/** Options that expect what the bundle shows. */
const expected = () => [...trust, ...pcrs, '--configuration', digest]

async function verify(...words: readonly string[]) {
  const { code, stdout, stderr } = await runCommand('verify', ...words, '--json')
  return { code, stderr, report: stdout === '' ? null : JSON.parse(stdout) }
}

const outcomeOf = (
  report: { bundle: { checks: { name: string; outcome: string }[] } },
  name: string,
) => report.bundle.checks.find((check) => check.name === name)?.outcome

describe('affidavit verify, of evidence', () => {
  it('verify says VERIFIED when measurements, configuration and root are the expected ones', async () => {
    const { code, stdout } = await runCommand('verify', file, ...expected())
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^VERIFIED: nothing failed, .* Not checked: block on chain\.\nAn enclave that runs code that you expect signed this question and this answer, /,
    )
    expect(stdout).toContain("You accept a root that is not AWS's")
    expect(stdout).toMatch(/not checked {2}block on chain +offline; look up that block/)
    expect(stdout).toContain('not after      not shown')
  })

  it.each([
    ['measurements', () => [...trust, '--configuration', digest]],
    ['measurements', () => [...trust, '--configuration', digest, '--any-measurement']],
    ['expected configuration', () => [...trust, ...pcrs]],
  ])('verify without the %s is never VERIFIED: the bundle is incomplete', async (name, words) => {
    const { code, report } = await verify(file, ...words())
    expect(code).toBe(3)
    expect(report.bundle).toMatchObject({ verdict: 'incomplete', open: [name] })
    expect(outcomeOf(report, name)).toBe('not checked')
  })

  it('verify fails another configuration, and other measurements', async () => {
    const other = await verify(file, ...trust, ...pcrs, '--configuration', 'ab'.repeat(32))
    expect([other.code, outcomeOf(other.report, 'expected configuration')]).toEqual([1, 'failed'])
    const words = ['--pcr', `0=${'ab'.repeat(48)}`, '--configuration', digest]
    const code = await verify(file, ...trust, ...words)
    expect([code.code, outcomeOf(code.report, 'measurements')]).toEqual([1, 'failed'])
  })

  it('verify looks the block up with --rpc, and gives the time that it shows', async () => {
    answers = honest
    const words = [file, ...expected(), '--rpc', rpc]
    const { code, report } = await verify(...words, '--confirmations', '10')
    expect(code).toBe(0)
    expect(report.bundle.facts.anchoredIn).toMatchObject({ hash: chain.blockHash })
    const deep = await verify(...words, '--confirmations', '11')
    expect([deep.code, outcomeOf(deep.report, 'block on chain')]).toEqual([3, 'not checked'])
  })

  it.each([
    ['another block', { eth_getBlockByNumber: { hash: `0x${'ab'.repeat(32)}` } }],
    ['no such block', { eth_getBlockByNumber: null }],
  ])('verify fails when the endpoint has %s', async (_, changed) => {
    answers = (method) =>
      new Map<string, unknown>(Object.entries({ [method]: honest(method), ...changed })).get(method)
    const { code, report } = await verify(file, ...trust, '--rpc', rpc)
    expect([code, outcomeOf(report, 'block on chain')]).toEqual([1, 'failed'])
  })

  it('verify calls the endpoint of another chain a fault of the command: the verdict stays', async () => {
    answers = (method) => (method === 'eth_chainId' ? '0x1' : honest(method))
    const { code, stderr, report } = await verify(file, ...expected(), '--rpc', rpc)
    expect([code, report.verdict]).toEqual([2, 'verified'])
    expect(stderr).toContain('--rpc: expected an endpoint of chain 31337, got chain 1')
  })

  it.each([
    ['answers nonsense', () => 'nonsense'],
    ['answers another form', () => ({})],
  ])('verify does not take an endpoint that %s for agreement', async (_, nonsense) => {
    answers = nonsense
    const { code, stderr, report } = await verify(file, ...trust, '--rpc', rpc)
    // What needs no chain was checked, and is reported.
    expect([code, report.verdict]).toEqual([3, 'incomplete'])
    expect(outcomeOf(report, 'block on chain')).toBe('not checked')
    expect(stderr).toContain('the chain cannot be reached')
    const changed = { ...bundle, record: { ...bundle.record, created_at: 1 } }
    const forged = await verify(await save('forged.json', changed), ...trust, '--rpc', rpc)
    expect([forged.code, forged.report.verdict]).toEqual([1, 'invalid'])
  })

  describe('of an answer that a gateway cut', () => {
    const cut = buildEvidence({ record: { receipt: { outcome: 'client_disconnected' } } }).bundle
    const words = expected

    it('a cut answer is verified with --allow-outcome of that outcome alone', async () => {
      const place = await save('cut.json', cut)
      const both = ['--allow-outcome', 'upstream_error,client_disconnected']
      const taken = await verify(place, ...words(), ...both)
      expect([taken.code, taken.report.bundle.facts.outcome]).toEqual([0, 'client_disconnected'])
      expect((await verify(place, ...words(), '--allow-outcome', 'upstream_error')).code).toBe(3)
    })
  })

  it.each([
    { gateway: 'javascript:alert(1)' },
    { operator: 'Example\u001b]8;;https://gateway.example\u0007' },
  ])(
    'verify refuses a bundle with the hostile source %j, and shows nothing from it',
    async (source) => {
      const path = await save('hostile-from.json', { ...bundle, source })
      const { code, stdout } = await runCommand('verify', path, ...trust)
      expect([code, stdout]).toEqual([1, expect.stringMatching(/^INVALID: failed at format\./)])
      expect(stdout).not.toContain('\u001b')
      expect(stdout).not.toMatch(/javascript|gateway\.example/)
    },
  )

  it('verify shows text from the bundle with control characters escaped', async () => {
    const provider = { ...bundle.record.receipt.provider, name: '\u001b[2J' }
    const evil = buildEvidence({ record: { receipt: { provider } } })
    const { stdout } = await runCommand('verify', await save('evil.json', evil.bundle), ...trust)
    expect(stdout).toContain('\\u{1b}[2J')
    expect(stdout).not.toContain('\u001b')
  })
})

describe('affidavit verify HASH, of a gateway that lies', () => {
  const other = buildEvidence({ record: { response: { ...RESPONSE, id: 'other' } } }).bundle
  const { hash } = bundle.record
  let gateway: ScriptedEndpoint

  beforeAll(async () => {
    gateway = await startScriptedEndpoint()
  })
  afterAll(async () => {
    await gateway.stop()
  })

  const ask = (asked: string, ...words: readonly string[]) =>
    runCommand('verify', asked, '--url', gateway.origin, ...expected(), ...words)

  it('verify of several sources checks each, and exits as the worst of them does', async () => {
    const good = await save('one of several.json', bundle)
    const bad = await save('other of several.json', { ...bundle, version: 9 })
    const nothing = join(folder, 'no such file')
    const both = await runCommand('verify', good, nothing, ...trust)
    expect(both.stdout).toMatch(/one of several\.json\nINCOMPLETE: /)
    expect([both.code, both.stderr]).toEqual([3, expect.stringContaining('no such file')])
    expect((await runCommand('verify', nothing, bad, good, ...trust)).code).toBe(1)
    expect((await runCommand('verify', good, good, ...trust)).code).toBe(3)
    expect((await runCommand('verify', good, good, '--request', good)).code).toBe(2)
  })

  it.each([
    ['text', 'hello', 'the input is not JSON: expected a value, at offset 0'],
    ['half of a bundle', '{"format":"affidavit-evid', 'the input is not JSON'],
    ['a picture', '\u0000PNG', 'the input is not JSON'],
  ])('a file that is no JSON is called that, and is no forgery: %s', async (_, text, words) => {
    const { code, stderr } = await runCommand('verify', await save('no.json', text))
    expect([code, stderr]).toEqual([2, expect.stringContaining(words)])
  })

  it('verify takes the bundle of the hash that was asked for, in either form', async () => {
    gateway.setScript(() => bundle)
    for (const asked of [hash, `0x${hash.toUpperCase()}`]) {
      const { code, stdout } = await ask(asked)
      expect([code, stdout]).toEqual([0, expect.stringContaining('VERIFIED: ')])
    }
    expect(gateway.requests.at(-1)?.url).toBe(`/v1/evidence/${hash}`)
    await ask(hash, '--key', 'sk-1')
    expect(gateway.requests.at(-1)?.url).toBe(`/v1/verified/records/${hash}/evidence`)
  })

  it.each<[string, string, () => unknown]>([
    ['another completion’s bundle', hash, () => other],
    ['a genuine bundle for an invented hash', 'ab'.repeat(32), () => bundle],
    [
      'a bundle with the hash written over',
      hash,
      () => ({ ...other, record: { ...other.record, hash } }),
    ],
    ['a plain record', hash, () => ({ ...buildRecord().stored, hash })],
    ['a bundle of an unknown version', hash, () => ({ ...bundle, version: 9 })],
  ])('verify refuses %s from a gateway that lies', async (_, asked, answer) => {
    gateway.setScript(answer)
    for (const words of [[], ['--request', await save('request.json', REQUEST)]]) {
      const { code, stdout } = await ask(asked, ...words)
      expect([code, stdout]).toEqual([
        1,
        expect.not.stringMatching(/VERIFIED|INCOMPLETE|VALID:? nothing|"ok": true/),
      ])
    }
  })
})

/** The proof that stands in a create response, or in the last chunk of a stream. */
function proofOf({
  hash,
  public_key,
  signature,
  tx_hash,
  attestation,
  receipt,
  log,
}: BundleRecord) {
  return { hash, public_key, signature, tx_hash, attestation, receipt, log }
}

describe('affidavit verify, with what the caller sent and got', () => {
  const answer = { ...RESPONSE, ...proofOf(bundle.record) }
  const words = expected
  it('verify takes evidence of the kept request and answer, and prints what was asked and said', async () => {
    const kept = [
      '--request',
      await save('request.json', REQUEST),
      '--answer',
      await save('answer.json', answer),
    ]
    const { code, stdout } = await runCommand('verify', file, ...kept, ...words())
    expect([code, stdout]).toEqual([0, expect.stringContaining('VERIFIED: ')])
    expect(stdout).toMatch(
      /passed {7}request given .*\n.*passed {7}answer given .*\n.*passed {7}proof given/,
    )
    expect(stdout).toMatch(
      /asked\n(.*\n)*.* user +\| \[name: ada\]\n +\| Größe\? 😀 \\u\{0\}\n(.*\n)*said\n +assistant +\| groß\n/,
    )
    const { report } = await verify(file, ...kept, ...words())
    expect(report.bundle.exchange).toMatchObject({
      checks: [{ name: 'request given' }, { name: 'answer given' }, { name: 'proof given' }],
      said: [{ who: 'assistant', left_out: 0 }],
    })
  })

  it.each<[string, string, unknown]>([
    ['request given', '--request', { ...REQUEST, temperature: 0 }],
    ['answer given', '--answer', { ...answer, choices: [] }],
    ['answer given', '--answer', { ...answer, note: 'added' }],
    ['proof given', '--answer', { ...answer, tx_hash: `0x${'ab'.repeat(32)}` }],
    ['proof given', '--answer', { ...answer, log: { ...bundle.record.log, chain_id: 1 } }],
  ])(
    'verify fails evidence of something else at %s, though it is genuine',
    async (name, option, content) => {
      const kept = [option, await save('kept.json', content)]
      for (const source of [file, await save('stored.json', bundle.record)]) {
        const { code, stdout } = await runCommand('verify', source, ...kept, ...trust, ...pcrs)
        expect(code).toBe(1)
        expect(stdout).toMatch(new RegExp(`FAILED {7}${name}`))
        expect(stdout).toMatch(/^INVALID: /)
        expect(stdout).not.toMatch(/VERIFIED|INCOMPLETE/)
        const { report } = await verify(source, ...kept, ...trust, ...pcrs)
        expect([report.ok, report.bundle?.verdict ?? 'invalid']).toEqual([false, 'invalid'])
      }
    },
  )

  it('verify prints nothing from evidence that does not hold', async () => {
    const forged = await save('forged.json', {
      ...bundle,
      record: { ...bundle.record, response: { ...RESPONSE, id: 'forged-words' } },
    })
    const { code, stdout } = await runCommand('verify', forged, ...trust)
    expect([code, stdout]).toEqual([1, expect.not.stringContaining('said\n')])
    expect((await verify(forged, ...trust)).report.bundle.exchange).toMatchObject({
      asked: null,
      said: null,
    })
  })

  it('verify prints text that would act on a terminal as escapes, in both forms of output', async () => {
    const content = '\u001b[2J\u202eVERIFIED\r\nVERIFIED: nothing failed'
    const response = {
      ...RESPONSE,
      choices: [{ index: 0, message: { role: 'assistant', content } }],
    }
    const place = await save('evil-words.json', buildEvidence({ record: { response } }).bundle)
    for (const form of [[], ['--json']]) {
      const { stdout } = await runCommand('verify', place, ...trust, ...form)
      expect(stdout).not.toMatch(/[^\n\P{Cc}]|\p{Cf}/u)
      expect(stdout).not.toMatch(/^VERIFIED/m)
      expect(stdout).toContain('INCOMPLETE: ')
    }
    expect((await verify(place, ...trust)).report.bundle.exchange.said[0].text).toBe(content)
  })
})

describe('affidavit verify, usage', () => {
  it.each([
    ['standard input named twice', () => ['-', '--request', '-']],
    ['an answer that is none', () => [file, '--answer', trust[1] ?? '']],
    ['a configuration that is no boot configuration', () => [file, '--configuration', file]],
    ['an endpoint that is no URL', () => [file, '--rpc', 'chain']],
    ['no confirmations', () => [file, '--confirmations', '0']],
    ['confirmations that no chain is asked for', () => [file, ...trust, '--confirmations', '5']],
    ['an unknown outcome', () => [file, '--allow-outcome', 'complete,whatever']],
    ['a base URL with a query', () => ['ab'.repeat(32), '--url', 'http://127.0.0.1/?a']],
  ])('verify refuses as usage %s', async (_, words) => {
    expect((await runCommand('verify', ...words())).code).toBe(2)
  })
})
