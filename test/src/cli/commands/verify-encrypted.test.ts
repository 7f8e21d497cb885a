import { readFile } from 'node:fs/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { isProofMember } from '#attestation/completion-hash.ts'
import { redactBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../../../attestation/evidence/build-evidence.ts'
import { folderOfFile, saverIn } from '../../../support/folders.ts'
import { PCR_VALUES, standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'
import { startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'

const { bundle: plain } = buildEvidence()
const { bundle: whole } = buildEvidence({ record: { receipt: { encrypted: true } } })
const { request, response, ...bound } = whole.record as typeof whole.record & {
  readonly request: JsonObject
  readonly response: JsonObject
}
const answer = {
  ...response,
  ...Object.fromEntries(Object.entries(bound).filter(([name]) => isProofMember(name))),
}
const configuration = ['--configuration', encodeHex(digestOf(BOOT_CONFIGURATION))]

const save = saverIn(folderOfFile())
let expected: readonly string[]
beforeAll(async () => {
  const root = await save('root.der', standardChain.cabundle[0])
  const pcr = encodeHex(PCR_VALUES.get(0) ?? new Uint8Array())
  expected = ['--root', root, '--pcr', `0=${pcr}`]
})

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
  it('the bundle of an encrypted call is VERIFIED with the two files or with the saved proof', async () => {
    const redacted = redactBundle(whole, { request: true, response: true })
    const path = await save('encrypted-bundle.json', redacted)
    const words = [path, ...expected, ...configuration]
    expect((await verify(...words)).report.bundle).toMatchObject({
      verdict: 'incomplete',
      redacted: ['request', 'response'],
    })
    const joined = await verify(...words, ...(await kept()))
    expect([joined.code, joined.report.bundle.redacted]).toEqual([0, []])
    const saved = { format: 'affidavit-proof', version: 1, request, answer }
    const file = await save('saved.json', saved)
    const proven = await verify(...words, '--answer', file)
    expect([proven.code, proven.report.bundle.verdict]).toEqual([0, 'verified'])
    const both = await runCommand('verify', ...words, ...(await kept()), '--answer', file)
    expect([both.code, both.stderr]).toEqual([2, expect.stringContaining('expected no --request')])
  })

  it('a completed proof is VERIFIED alone, and INVALID with the bundle of another call', async () => {
    const redacted = redactBundle(whole, { request: true, response: true })
    const saved = { format: 'affidavit-proof', version: 1, request, answer, bundle: redacted }
    const words = [...expected, ...configuration]
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

  it('a proof without its bundle says how to complete it, and complete does', async () => {
    const gateway = await startScriptedEndpoint()
    const saved = { format: 'affidavit-proof', version: 1, request, answer }
    const file = await save('to-complete.json', saved)
    const before = await runCommand('verify', file, ...expected, ...configuration)
    expect(before.stdout).toMatch(/^INCOMPLETE: .*\n(.*\n)*- .*affidavit complete \S+ --url URL\n/)
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
    const after = await verify(file, ...expected, ...configuration)
    expect([after.code, after.report.bundle.source]).toEqual([0, source])
    await gateway.stop()
    expect(await complete()).toMatchObject({ code: 0 })
  })
})
