import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { isProofMember } from '#attestation/completion-hash.ts'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { redactBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../../../attestation/evidence/build-evidence.ts'
import { PCR_VALUES, standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'
import { startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'

const { bundle: plain } = buildEvidence()
const { bundle: whole } = buildEvidence({ record: { receipt: { encrypted: true } } })
const { request, response, ...bound } = whole.record as typeof whole.record & {
  readonly request: JsonObject
  readonly response: JsonObject
}
/** As a gateway serves it. */
const served = {
  id: '0198c0de-0000-7000-8000-000000000001',
  request: null,
  response: null,
  redacted: true,
  usage: null,
  ...bound,
}
const answer = {
  ...response,
  ...Object.fromEntries(Object.entries(bound).filter(([name]) => isProofMember(name))),
}
const configuration = ['--configuration', encodeHex(digestOf(BOOT_CONFIGURATION))]

let folder: string
let expected: readonly string[]
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-verify-'))
  const root = join(folder, 'root.der')
  await writeFile(root, standardChain.cabundle[0] ?? new Uint8Array())
  const pcr = encodeHex(PCR_VALUES.get(0) ?? new Uint8Array())
  expected = ['--root', root, '--pcr', `0=${pcr}`]
})
afterAll(() => rm(folder, { recursive: true }))

async function save(name: string, content: unknown): Promise<string> {
  const path = join(folder, name)
  await writeFile(path, JSON.stringify(content))
  return path
}

const kept = async () => [
  '--request',
  await save('request.json', request),
  '--answer',
  await save('answer.json', answer),
]

async function verify(...words: readonly string[]) {
  const { code, stdout } = await runCommand('verify', ...words, '--json')
  return { code, report: JSON.parse(stdout) }
}

describe('affidavit verify, of the evidence of an encrypted call', () => {
  it('verify says of an encrypted record, alone and in a page, whose content it did not see', async () => {
    const page = { completions: [served, served], cursor: null }
    for (const source of [served, page]) {
      const path = await save('record.json', source)
      const { code, stdout } = await runCommand('verify', path, ...expected)
      expect(code).toBe(0)
      expect(stdout).toMatch(
        /^CONSISTENT: .*request hash, response hash(.*\n)*- Only the caller has the content .*--request and --answer/,
      )
    }
  })

  it('the content of an encrypted record is checked with what its caller kept, and INVALID with anything else', async () => {
    const path = await save('record.json', served)
    const { code, stdout } = await runCommand('verify', path, ...expected, ...(await kept()))
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^CONSISTENT: .*: boot configuration, anchor\.\n/),
    ])
    expect(stdout).toContain('groß')
    const words = ['--request', await save('other.json', { ...request, seed: 7 })]
    const other = await runCommand('verify', path, ...expected, ...words)
    expect([other.code, other.stdout]).toEqual([1, expect.stringContaining('INVALID')])
  })

  it('an encrypted record is INVALID when its receipt does not say that the call was encrypted', async () => {
    const { receipt, log } = plain.record
    const path = await save('taken-out.json', { ...served, receipt, log })
    const { code, stdout } = await runCommand('verify', path, ...expected)
    expect([code, stdout]).toEqual([1, expect.stringMatching(/FAILED +request hash/)])
  })

  it('the bundle of an encrypted call is VERIFIED with the two files or with the saved proof', async () => {
    const redacted = redactBundle(whole, { request: true, response: true })
    const path = await save('encrypted-bundle.json', redacted)
    const words = [path, ...expected, ...configuration]
    expect((await verify(...words)).report.bundle).toMatchObject({
      verdict: 'consistent',
      redacted: ['request', 'response'],
    })
    const joined = await verify(...words, ...(await kept()), '--require', 'verified')
    expect([joined.code, joined.report.bundle.redacted]).toEqual([0, []])
    const saved = { format: 'affidavit-proof', version: 1, request, answer }
    const file = await save('saved.json', saved)
    const proven = await verify(...words, '--answer', file, '--require', 'verified')
    expect([proven.code, proven.report.bundle.verdict]).toEqual([0, 'verified'])
    const both = await runCommand('verify', ...words, ...(await kept()), '--answer', file)
    expect([both.code, both.stderr]).toEqual([2, expect.stringContaining('expected no --request')])
  })

  it('a completed proof is VERIFIED alone, and INVALID with the bundle of another call', async () => {
    const redacted = redactBundle(whole, { request: true, response: true })
    const saved = { format: 'affidavit-proof', version: 2, request, answer, bundle: redacted }
    const words = [...expected, ...configuration, '--require', 'verified']
    const alone = await verify(await save('completed.json', saved), ...words)
    expect([alone.code, alone.report.verdict]).toEqual([0, 'verified'])
    const other = { ...saved, request: { ...request, seed: 7 } }
    const swapped = await verify(await save('swapped.json', other), ...words)
    expect([swapped.code, swapped.report.conclusion]).toEqual([
      1,
      'INVALID: failed at request given.',
    ])
    const twice = ['--answer', await save('again.json', answer)]
    const reported = await runCommand('verify', await save('completed.json', saved), ...twice)
    expect([reported.code, reported.stderr]).toEqual([2, expect.stringContaining('answer')])
  })

  it('a completed proof of a stream whose usage was not asked for is VERIFIED by its chunks', async () => {
    const chunk = (delta: JsonObject, finish: string | null): JsonObject => ({
      id: 'c',
      object: 'chat.completion.chunk',
      created: 1,
      model: 'm',
      usage: null,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
    })
    const chunks = [
      chunk({ role: 'assistant', content: '' }, null),
      chunk({ content: 'Hi' }, null),
      chunk({ content: '' }, 'stop'),
    ]
    const { request: asked } = plain.record as unknown as { readonly request: JsonObject }
    const built = buildEvidence({
      record: {
        request: { ...asked, stream: true },
        response: { ...assembleCompletion(chunks), usage: { total_tokens: 3 } },
        streamHash: hashChunks(chunks),
        receipt: { encrypted: true },
      },
    }).bundle
    const proof = Object.fromEntries(
      Object.entries(built.record).filter(([name]) => isProofMember(name)),
    )
    const kept = [...chunks.slice(0, -1), { ...chunks.at(-1), ...proof }]
    const bundle = redactBundle(built, { request: true, response: true })
    const saved = { format: 'affidavit-proof', version: 2, bundle }
    const words = [...expected, ...configuration, '--require', 'verified']
    const streamed = { ...saved, request: { ...asked, stream: true }, chunks: kept }
    const alone = await verify(await save('streamed.json', streamed), ...words)
    expect([alone.code, alone.report.verdict, alone.report.bundle.open]).toEqual([
      0,
      'verified',
      [],
    ])
    const cut = { ...streamed, chunks: [kept[0], kept[2]] }
    const reported = await verify(await save('cut-stream.json', cut), ...words)
    expect([reported.code, reported.report.verdict]).toEqual([1, 'invalid'])
  })

  it('a proof without its bundle says how to complete it, and complete does', async () => {
    const gateway = await startScriptedEndpoint()
    const saved = { format: 'affidavit-proof', version: 1, request, answer }
    const file = await save('to-complete.json', saved)
    const before = await runCommand('verify', file, ...expected, ...configuration)
    expect(before.stdout).toMatch(/^CONSISTENT: .*\n(.*\n)*- .*affidavit complete \S+ --url URL\n/)
    const complete = () => runCommand('complete', file, '--url', gateway.origin)
    const redacted = redactBundle(whole, { request: true, response: true })
    gateway.setScript(() => plain)
    expect(await complete()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('another call'),
    })
    gateway.setScript(() => ({
      ...redacted,
      block: null,
      no_block: { reason: 'not_mined', transaction: redacted.record.tx_hash },
    }))
    expect(await complete()).toMatchObject({ code: 3, stderr: expect.stringContaining('no block') })
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual(saved)
    const source = { gateway: 'https://gateway.example' }
    gateway.setScript(() => ({ ...redacted, source }))
    expect(await complete()).toMatchObject({ code: 0 })
    expect(JSON.parse(await readFile(file, 'utf8')).bundle.source).toEqual(source)
    expect(await complete()).toMatchObject({ code: 0, stdout: expect.stringContaining('already') })
    const after = await verify(file, ...expected, ...configuration, '--require', 'verified')
    expect([after.code, after.report.bundle.source]).toEqual([0, source])
    await gateway.stop()
    expect(await complete()).toMatchObject({ code: 0 })
  })

  it('a proof that cannot be completed yet does not keep the later ones from it', async () => {
    const gateway = await startScriptedEndpoint()
    const saved = { format: 'affidavit-proof', version: 1, request, answer }
    const files = [await save('not-yet.json', saved), await save('ready.json', saved)]
    const redacted = redactBundle(whole, { request: true, response: true })
    const no_block = { reason: 'not_mined', transaction: redacted.record.tx_hash }
    let asked = 0
    gateway.setScript(() => {
      asked += 1
      return asked === 1 ? { ...redacted, block: null, no_block } : redacted
    })
    const done = await runCommand('complete', ...files, '--url', gateway.origin)
    expect(done).toMatchObject({
      code: 3,
      stderr: expect.stringMatching(/^\S*not-yet\.json: .*no block/),
      stdout: expect.stringMatching(/^\S*ready\.json now has its evidence bundle/),
    })
    const kept = await Promise.all(
      files.map(async (file) => JSON.parse(await readFile(file, 'utf8'))),
    )
    expect(kept.map(({ bundle }) => bundle !== undefined)).toEqual([false, true])
    await gateway.stop()
  })
})
