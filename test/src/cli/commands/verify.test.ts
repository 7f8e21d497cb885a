import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { type BundleRecord, redactBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import { buildRecord, REQUEST, RESPONSE } from '../../../attestation/build-record.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../../../attestation/evidence/build-evidence.ts'
import { PCR_VALUES, standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'

const { bundle, chain } = buildEvidence()
const digest = encodeHex(digestOf(BOOT_CONFIGURATION))
const pcrs = [0, 1, 2].flatMap((index) => [
  '--pcr',
  `${index}=${encodeHex(PCR_VALUES.get(index) ?? new Uint8Array())}`,
])

let folder: string
let file: string
let trust: readonly string[]
let endpoint: Server
let rpc: string
/** What the chain's endpoint answers; a function of the method. */
let answers: (method: string) => unknown

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-verify-'))
  file = await save('bundle.json', bundle)
  trust = ['--root', await saveBytes('root.der', standardChain.cabundle[0] ?? new Uint8Array())]
  endpoint = createServer(async (request, response) => {
    const body = JSON.parse(await new Response(request as never).text())
    const reply = (call: { id: unknown; method: string }) => ({
      jsonrpc: '2.0',
      id: call.id,
      result: answers(call.method),
    })
    response.end(JSON.stringify(Array.isArray(body) ? body.map(reply) : reply(body)))
  })
  await new Promise<void>((resolve) => endpoint.listen(0, '127.0.0.1', resolve))
  rpc = `http://127.0.0.1:${(endpoint.address() as AddressInfo).port}`
})
afterAll(async () => {
  endpoint.close()
  await rm(folder, { recursive: true })
})

async function saveBytes(name: string, content: Uint8Array | string): Promise<string> {
  const path = join(folder, name)
  await writeFile(path, content)
  return path
}

const save = (name: string, content: unknown) => saveBytes(name, JSON.stringify(content))

/** A chain that has the bundle's block. */
const honest = (method: string) =>
  ({
    eth_chainId: `0x${chain.chainId.toString(16)}`,
    eth_blockNumber: `0x${chain.newestBlock.toString(16)}`,
    eth_getBlockByNumber: { hash: chain.blockHash },
  })[method]

async function verify(...words: readonly string[]) {
  const { code, stdout, stderr } = await runCommand('verify', ...words, '--json')
  return { code, stderr, report: stdout === '' ? null : JSON.parse(stdout) }
}

const outcomeOf = (
  report: { bundle: { checks: { name: string; outcome: string }[] } },
  name: string,
) => report.bundle.checks.find((check) => check.name === name)?.outcome

describe('affidavit verify, of an evidence bundle', () => {
  it('verify says VERIFIED when measurements, configuration and root are the expected ones', async () => {
    const { code, stdout } = await runCommand(
      'verify',
      file,
      ...trust,
      ...pcrs,
      '--configuration',
      digest,
      '--require',
      'verified',
    )
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^VERIFIED: nothing failed, .* Not checked: block on chain\.\nAn enclave that runs code that you expect signed this question and this answer at /,
    )
    expect(stdout).toContain("You accept a root that is not AWS's")
    expect(stdout).toMatch(/not checked {2}block on chain +offline; look up that block/)
    expect(stdout).toContain('not after      not shown')
  })

  it('verify takes the expected configuration from a file', async () => {
    const configuration = await save('configuration.json', BOOT_CONFIGURATION)
    const { code, report } = await verify(file, ...trust, ...pcrs, '--configuration', configuration)
    expect({ code, verdict: report.bundle.verdict }).toEqual({ code: 0, verdict: 'verified' })
  })

  it.each([
    ['measurements', () => [...trust, '--configuration', digest]],
    ['measurements', () => [...trust, '--configuration', digest, '--any-measurement']],
    ['expected configuration', () => [...trust, ...pcrs]],
  ])(
    'verify without the %s is never VERIFIED: the bundle is consistent, and fails --require verified',
    async (name, words) => {
      const { code, report } = await verify(file, ...words())
      expect(code).toBe(0)
      expect(report.bundle).toMatchObject({ verdict: 'consistent', open: [name] })
      expect(outcomeOf(report, name)).toBe('not checked')
      expect((await verify(file, ...words(), '--require', 'verified')).code).toBe(1)
    },
  )

  it('verify fails an attestation document that does not lead to AWS, when no other root is given', async () => {
    const { code, report } = await verify(file, ...pcrs, '--configuration', digest)
    expect(code).toBe(1)
    expect(outcomeOf(report, 'attestation document')).toBe('failed')
  })

  it('verify fails another configuration, and other measurements', async () => {
    const other = await verify(file, ...trust, ...pcrs, '--configuration', 'ab'.repeat(32))
    expect([other.code, outcomeOf(other.report, 'expected configuration')]).toEqual([1, 'failed'])
    const code = await verify(
      file,
      ...trust,
      '--pcr',
      `0=${'ab'.repeat(48)}`,
      '--configuration',
      digest,
    )
    expect([code.code, outcomeOf(code.report, 'measurements')]).toEqual([1, 'failed'])
  })

  it('verify fails a changed bundle at the check that names it, and an unknown version at its format', async () => {
    const changed = await save('changed.json', {
      ...bundle,
      record: { ...bundle.record, created_at: bundle.record.created_at + 1 },
    })
    const { code, report } = await verify(changed, ...trust)
    expect([code, outcomeOf(report, 'created_at')]).toEqual([1, 'failed'])
    const future = await verify(await save('future.json', { ...bundle, version: 4 }))
    expect([future.code, outcomeOf(future.report, 'format')]).toEqual([1, 'failed'])
  })

  it('verify looks the block up with --rpc, and gives the time that it shows', async () => {
    answers = honest
    const words = [file, ...trust, ...pcrs, '--configuration', digest, '--rpc', rpc]
    const { code, report } = await verify(...words, '--confirmations', '10')
    expect(code).toBe(0)
    expect(report.bundle.facts.anchoredIn).toMatchObject({ hash: chain.blockHash })
    const deep = await verify(...words, '--confirmations', '11')
    expect([deep.code, outcomeOf(deep.report, 'block on chain')]).toEqual([1, 'failed'])
  })

  it.each([
    ['another block', { eth_getBlockByNumber: { hash: `0x${'ab'.repeat(32)}` } }],
    ['no such block', { eth_getBlockByNumber: null }],
    ['another chain', { eth_chainId: '0x1' }],
  ])('verify fails when the endpoint has %s', async (_, changed) => {
    answers = (method) =>
      new Map<string, unknown>(Object.entries({ [method]: honest(method), ...changed })).get(method)
    const { code, report } = await verify(file, ...trust, '--rpc', rpc)
    expect([code, outcomeOf(report, 'block on chain')]).toEqual([1, 'failed'])
  })

  it.each([
    ['answers nonsense', () => 'nonsense'],
    ['answers another form', () => ({})],
  ])('verify does not take an endpoint that %s for agreement', async (_, nonsense) => {
    answers = nonsense
    const { code, stderr, report } = await verify(file, ...trust, '--rpc', rpc)
    // What needs no chain was checked, and is reported.
    expect([code, report.verdict]).toEqual([3, 'consistent'])
    expect(outcomeOf(report, 'block on chain')).toBe('not checked')
    expect(stderr).toContain('the chain cannot be reached')
    const changed = { ...bundle, record: { ...bundle.record, created_at: 1 } }
    const forged = await verify(await save('forged.json', changed), ...trust, '--rpc', rpc)
    expect([forged.code, forged.report.verdict]).toEqual([1, 'invalid'])
  })

  describe('of an answer that a gateway cut', () => {
    const cut = buildEvidence({ record: { receipt: { outcome: 'client_disconnected' } } }).bundle
    const words = () => [...trust, ...pcrs, '--configuration', digest, '--require', 'verified']

    it('a cut answer is CONSISTENT at best, with the reason, and fails --require verified', async () => {
      const { code, stdout } = await runCommand('verify', await save('cut.json', cut), ...words())
      expect(code).toBe(1)
      expect(stdout).toMatch(/not checked {2}outcome +client_disconnected: the answer was cut/)
      expect(stdout).toMatch(/^CONSISTENT: .*outcome.*\n.*that the answer is whole/)
      expect(stdout).toMatch(/- The answer was cut \(client_disconnected\).*--allow-outcome/)
      expect(stdout).toContain('outcome        client_disconnected: the answer was cut')
    })

    it('a cut answer is verified with --allow-outcome of that outcome alone', async () => {
      const place = await save('cut.json', cut)
      const taken = await verify(
        place,
        ...words(),
        '--allow-outcome',
        'upstream_error,client_disconnected',
      )
      expect([taken.code, taken.report.bundle.facts.outcome]).toEqual([0, 'client_disconnected'])
      expect((await verify(place, ...words(), '--allow-outcome', 'upstream_error')).code).toBe(1)
    })
  })

  it('verify tells provider and models as facts', async () => {
    const { stdout } = await runCommand('verify', file, ...trust)
    expect(stdout).toContain('provider       demo at https://provider.example\n')
    expect(stdout).toContain('model          demo/echo, answered by demo/echo-2025\n')
    expect(stdout).toContain('outcome        complete\n')
    const { report } = await verify(file, ...trust)
    expect(report.bundle.facts).toMatchObject({
      provider: { name: 'demo', origin: 'https://provider.example' },
      model: { requested: 'demo/echo', returned: 'demo/echo-2025' },
      outcome: 'complete',
    })
  })

  it('verify shows where a bundle says it is from as a hint, and whom to ask where expectations are missing', async () => {
    const gateway = await startScriptedEndpoint()
    const source = {
      gateway: gateway.origin,
      operator: 'Example Ltd',
      releases: `${gateway.origin}/releases.json`,
    }
    const path = await save('from.json', { ...bundle, source })
    const said = `says it is from  ${gateway.origin} (“Example Ltd”; releases at ${source.releases}): a hint, not checked\n`
    const advice = `- The bundle names ${gateway.origin} (“Example Ltd”) as its source, and anyone can write that. If it is your vendor, take expect.json from where you know the vendor`
    const unsure = await runCommand('verify', path, ...trust)
    expect(unsure.stdout).toMatch(/^CONSISTENT: /)
    expect(unsure.stdout).toContain(said)
    expect(unsure.stdout).toContain(advice)
    const sure = await runCommand('verify', path, ...trust, ...pcrs, '--configuration', digest)
    expect(sure.stdout).toMatch(/^VERIFIED: /)
    expect(sure.stdout).toContain(said)
    expect(sure.stdout).not.toContain('The bundle names')
    const changed = { ...bundle, source, boot_configuration: { ...BOOT_CONFIGURATION, more: 1 } }
    const broken = await runCommand('verify', await save('broken-from.json', changed), ...trust)
    expect([broken.code, broken.stdout]).toEqual([1, expect.not.stringContaining(gateway.origin)])
    expect(gateway.requests).toEqual([])
    await gateway.stop()
  })

  it('verify gives the same report of a bundle with a source and without it, but for the source', async () => {
    const source = { operator: 'Example Ltd' }
    const path = await save('named.json', { ...bundle, source })
    for (const words of [[], [...pcrs, '--configuration', digest]]) {
      const named = await verify(path, ...trust, ...words)
      const plain = await verify(file, ...trust, ...words)
      expect(plain.report.bundle.source).toBeNull()
      expect(named).toEqual({
        ...plain,
        report: { ...plain.report, bundle: { ...plain.report.bundle, source } },
      })
    }
  })

  it.each([
    { gateway: 'javascript:alert(1)' },
    { gateway: 'https://gateway.example/\u001b[2J' },
    { operator: 'Example\u001b]8;;https://gateway.example\u0007' },
    { releases: `https://gateway.example/${'x'.repeat(10_000)}` },
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

  it('verify says what was left out of a redacted bundle, which is never verified', async () => {
    const redacted = await save('redacted.json', redactBundle(bundle, { request: true }))
    const { code, report } = await verify(redacted, ...trust, ...pcrs, '--configuration', digest)
    expect(code).toBe(0)
    expect(report.bundle).toMatchObject({ verdict: 'consistent', redacted: ['request'] })
    expect(outcomeOf(report, 'request hash')).toBe('not checked')
  })

  it('verify shows text from the bundle with control characters escaped', async () => {
    const receipt = {
      provider: { name: '\u001b[2J', origin: 'https://provider.example', tls: null },
    }
    const evil = buildEvidence({
      record: {
        receipt: { provider: { ...receipt.provider, tls: bundle.record.receipt.provider.tls } },
      },
    })
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
    runCommand(
      'verify',
      asked,
      '--url',
      gateway.origin,
      ...trust,
      ...pcrs,
      '--configuration',
      digest,
      ...words,
    )

  it('verify of several sources checks each, and exits as the worst of them does', async () => {
    const good = await save('one of several.json', bundle)
    const bad = await save('other of several.json', { ...bundle, version: 9 })
    const nothing = join(folder, 'no such file')
    const both = await runCommand('verify', good, nothing, ...trust)
    expect(both.stdout).toMatch(/one of several\.json\nCONSISTENT: /)
    expect([both.code, both.stderr]).toEqual([3, expect.stringContaining('no such file')])
    expect((await runCommand('verify', nothing, bad, good, ...trust)).code).toBe(1)
    expect((await runCommand('verify', good, good, ...trust)).code).toBe(0)
    expect((await runCommand('verify', good, good, '--request', good)).code).toBe(2)
  })

  it.each([
    ['text', 'hello', 'the input is not JSON: expected a value, at offset 0'],
    ['half of a bundle', '{"format":"affidavit-evid', 'the input is not JSON'],
    ['a picture', '\u0000PNG', 'the input is not JSON'],
  ])('a file that is no JSON is called that, and is no forgery: %s', async (_, text, words) => {
    const { code, stderr } = await runCommand('verify', await saveBytes('no.json', text))
    expect([code, stderr]).toEqual([2, expect.stringContaining(words)])
  })

  it('JSON that readers understand differently is no evidence', async () => {
    const { code, stderr } = await runCommand(
      'verify',
      await saveBytes('no.json', '{"format":1,"format":2}'),
    )
    expect([code, stderr]).toEqual([1, expect.stringContaining('one meaning only')])
  })

  it('verify takes the bundle of the hash that was asked for, in either form', async () => {
    gateway.setScript(() => bundle)
    for (const asked of [hash, `0x${hash}`, `0x${hash.toUpperCase()}`]) {
      const { code, stdout } = await ask(asked, '--require', 'verified')
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
    ['a page of records', hash, () => ({ completions: [buildRecord().stored], cursor: null })],
    ['an answer', hash, () => ({ ...buildRecord().created, hash })],
    ['a bundle of an unknown version', hash, () => ({ ...bundle, version: 9 })],
    ['nothing', hash, () => ({})],
  ])('verify refuses %s from a gateway that lies', async (_, asked, answer) => {
    gateway.setScript(answer)
    for (const words of [
      [],
      ['--require', 'verified'],
      ['--json'],
      ['--request', await save('request.json', REQUEST)],
    ]) {
      const { code, stdout } = await ask(asked, ...words)
      expect([code, stdout]).toEqual([
        1,
        expect.not.stringMatching(/VERIFIED|CONSISTENT|VALID:? nothing|"ok": true/),
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
  const chunks: readonly JsonObject[] = ['gr', 'oß'].map((content) => ({
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1760000000,
    model: 'demo/echo-2025',
    choices: [{ index: 0, delta: { role: 'assistant', content }, finish_reason: null }],
  }))
  const asked = { ...REQUEST, stream: true, stream_options: { include_usage: true } }
  const streamHash = hashChunks(chunks)
  const response = assembleCompletion(chunks)
  const streamed = buildEvidence({ record: { request: asked, response, streamHash } }).bundle
  const answer = { ...RESPONSE, ...proofOf(bundle.record) }
  const words = () => [...trust, ...pcrs, '--configuration', digest, '--require', 'verified']
  const sse = (values: readonly unknown[]) =>
    [...values.map((value) => `data: ${JSON.stringify(value)}\n\n`), 'data: [DONE]\n\n'].join('')
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

  it('verify takes a kept stream, and fails a stream in which a word was changed', async () => {
    const place = await save('streamed.json', streamed)
    const text = sse([...chunks.slice(0, -1), { ...chunks.at(-1), ...proofOf(streamed.record) }])
    const good = await runCommand(
      'verify',
      place,
      '--answer',
      await saveBytes('good.sse', text),
      ...words(),
    )
    expect([good.code, good.stdout]).toEqual([0, expect.stringContaining('VERIFIED: ')])
    const changed = await saveBytes('changed.sse', text.replace('"gr"', '"br"'))
    const { code, stdout } = await runCommand('verify', place, '--answer', changed, ...words())
    expect([code, stdout]).toEqual([1, expect.stringContaining('INVALID: failed at answer given')])
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
        expect(stdout).not.toMatch(/VERIFIED|CONSISTENT/)
        const { report } = await verify(source, ...kept, ...trust, ...pcrs)
        expect([report.ok, report.bundle?.verdict ?? 'invalid']).toEqual([false, 'invalid'])
      }
    },
  )

  it('verify checks parts that were left out by what the caller kept of them', async () => {
    const redacted = await save(
      'redacted.json',
      redactBundle(bundle, { request: true, response: true }),
    )
    const kept = [
      '--request',
      await save('request.json', REQUEST),
      '--answer',
      await save('answer.json', answer),
    ]
    const { code, stdout } = await runCommand('verify', redacted, ...kept, ...words())
    expect([code, stdout]).toEqual([0, expect.stringContaining('VERIFIED: ')])
    expect(stdout).toContain('| groß')
    const wrong = ['--request', await save('other.json', { ...REQUEST, user: 'me' })]
    expect((await runCommand('verify', redacted, ...wrong, ...trust)).code).toBe(1)
  })

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
      expect(stdout).toContain('CONSISTENT: ')
    }
    expect((await verify(place, ...trust)).report.bundle.exchange.said[0].text).toBe(content)
  })

  it.each<[string, () => Promise<readonly string[]>]>([
    [
      'a page of records',
      async () => [
        await save('page.json', { completions: [bundle.record, bundle.record] }),
        '--request',
        await save('request.json', REQUEST),
      ],
    ],
    [
      'an answer with another answer',
      async () => [
        await save('answer.json', answer),
        '--request',
        await save('request.json', REQUEST),
        '--answer',
        await save('other-answer.json', answer),
      ],
    ],
  ])('verify refuses %s, which it could compare with nothing', async (_, given) => {
    expect((await runCommand('verify', ...(await given()))).code).toBe(2)
  })
})

describe('affidavit verify, of a record', () => {
  it('verify gives programs the verdict of a record in the words of a bundle’s report', async () => {
    const place = await save('told-record.json', bundle.record)
    const forged = await save('forged-record.json', { ...bundle.record, created_at: 1 })
    const reported = async (...words: readonly string[]) => (await verify(...words)).report.verdict
    // A record has neither the boot configuration nor the anchor.
    expect(await reported(place, ...trust, ...pcrs, '--configuration', digest)).toBe('consistent')
    expect(await reported(place)).toBe('consistent')
    expect(await reported(forged, ...trust, ...pcrs)).toBe('invalid')
  })

  it('verify says of an answer that came without log that nothing shows its provider', async () => {
    const { log: _, ...answer } = { ...RESPONSE, ...proofOf(bundle.record) }
    const request = ['--request', await save('request.json', REQUEST)]
    const { code, stdout } = await runCommand(
      'verify',
      await save('no-log.json', answer),
      ...request,
      ...trust,
      ...pcrs,
    )
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^CONSISTENT: .*receipt in log(.*\n)*- This answer has no log/),
    ])
    expect(stdout).not.toContain('provider demo')
    const whole = { ...RESPONSE, ...proofOf(bundle.record) }
    const kept = await save('with-log.json', whole)
    const good = await runCommand('verify', kept, ...request, ...trust, ...pcrs)
    expect(good.stdout).toMatch(/^CONSISTENT: .*: boot configuration, anchor\.\n/)
    expect(good.stdout).toMatch(/asked\n(.*\n)*said\n +assistant +\| groß\n/)
  })

  it('verify says of a cut answer that its end was not checked, unless told to take it', async () => {
    const { record } = buildEvidence({ record: { receipt: { outcome: 'upstream_error' } } }).bundle
    const words = ['verify', await save('cut-record.json', record), ...trust, ...pcrs]
    const { code, stdout } = await runCommand(...words)
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^CONSISTENT: .*outcome(.*\n)*- The answer was cut \(upstream_error\)/),
    ])
    expect((await runCommand(...words, '--allow-outcome', 'upstream_error')).stdout).toMatch(
      /^CONSISTENT: .*: boot configuration, anchor\.\n/,
    )
  })

  it('verify leaves open what only a bundle shows, and says where to get one', async () => {
    const record = await save('record.json', buildRecord().stored)
    const words = ['verify', record, '--configuration', digest]
    const { code, stdout } = await runCommand(...words)
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(
        /^CONSISTENT: .*boot configuration, anchor(.*\n)*- A record has neither/,
      ),
    ])
    expect((await runCommand(...words, '--require', 'verified')).code).toBe(1)
  })
})

describe('affidavit verify, usage', () => {
  it.each([
    ['standard input named twice', () => ['-', '--request', '-']],
    ['an answer that is none', () => [file, '--answer', file]],
    ['a configuration that is no boot configuration', () => [file, '--configuration', file]],
    ['an endpoint that is no URL', () => [file, '--rpc', 'chain']],
    ['no confirmations', () => [file, '--confirmations', '0']],
    ['confirmations that no chain is asked for', () => [file, ...trust, '--confirmations', '5']],
    ['an unknown outcome', () => [file, '--allow-outcome', 'complete,whatever']],
    ['an unknown verdict', () => [file, '--require', 'consistent']],
    ['a base URL with a query', () => ['ab'.repeat(32), '--url', 'http://127.0.0.1/?a']],
  ])('verify refuses as usage %s', async (_, words) => {
    expect((await runCommand('verify', ...words())).code).toBe(2)
  })
})
