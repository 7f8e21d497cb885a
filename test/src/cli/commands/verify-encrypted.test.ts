import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { isProofMember } from '#attestation/completion-hash.ts'
import { redactBundle } from '#attestation/evidence/bundle.ts'
import { saveEvidence, writeEvidence } from '#attestation/evidence/create-evidence.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../../../attestation/evidence/build-evidence.ts'
import { folderOfFile, folderOfTest, saverIn } from '../../../support/folders.ts'
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
/** What the client saves of this call, without its anchor. */
const kept = () =>
  writeEvidence(
    saveEvidence(
      { request, answer: { kind: 'whole', answer } },
      { configuration: BOOT_CONFIGURATION, unanswered: [] },
    ),
  )
const configuration = ['--configuration', encodeHex(digestOf(BOOT_CONFIGURATION))]

const save = saverIn(folderOfFile())
let expected: readonly string[]
beforeAll(async () => {
  const root = await save('root.der', standardChain.cabundle[0])
  const pcr = encodeHex(PCR_VALUES.get(0) ?? new Uint8Array())
  expected = ['--root', root, '--pcr', `0=${pcr}`]
})

const givenFiles = async () => [
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
  it('the bundle of an encrypted call is VERIFIED with the two files or with the saved evidence', async () => {
    const redacted = redactBundle(whole, { request: true, response: true })
    const path = await save('encrypted-bundle.json', redacted)
    const words = [path, ...expected, ...configuration]
    expect((await verify(...words)).report.bundle).toMatchObject({
      verdict: 'incomplete',
      redacted: ['request', 'response'],
    })
    const joined = await verify(...words, ...(await givenFiles()))
    expect([joined.code, joined.report.bundle.redacted]).toEqual([0, []])
    const file = await save('saved.json', kept())
    const proven = await verify(...words, '--answer', file)
    expect([proven.code, proven.report.bundle.verdict]).toEqual([0, 'verified'])
    const both = await runCommand('verify', ...words, ...(await givenFiles()), '--answer', file)
    expect([both.code, both.stderr]).toEqual([2, expect.stringContaining('expected no --request')])
  })

  it('saved evidence without its anchor says how to complete it, and complete does', async () => {
    const gateway = await startScriptedEndpoint()
    const file = await save('to-complete.json', kept())
    const before = await runCommand('verify', file, ...expected, ...configuration)
    expect(before.code).toBe(3)
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
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual(JSON.parse(kept()))
    const { block } = redacted
    gateway.setScript(() => ({
      ...redacted,
      block: { ...block, number: Number(block?.number) + 1 },
    }))
    expect(await complete()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("the gateway's anchor is invalid: block header: "),
    })
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual(JSON.parse(kept()))
    const source = { gateway: 'https://gateway.example' }
    gateway.setScript(() => ({ ...redacted, source }))
    expect(await complete()).toMatchObject({ code: 0 })
    expect(JSON.parse(await readFile(file, 'utf8')).source).toEqual(source)
    expect(await complete()).toMatchObject({ code: 0, stdout: expect.stringContaining('already') })
    const after = await verify(file, ...expected, ...configuration)
    expect([after.code, after.report.bundle.source]).toEqual([0, source])
    await gateway.stop()
    expect(await complete()).toMatchObject({ code: 0 })
  })

  it.each(['-', 'http://127.0.0.1:9/v1/evidence/ab'])(
    'complete refuses %s, to which it cannot add an anchor',
    async (source) => {
      expect(await runCommand('complete', source)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('expected a file'),
      })
    },
  )

  it('complete, redact and evidence --html take a line of a file, a file, a folder and a saved page', async () => {
    const gateway = await startScriptedEndpoint()
    gateway.setScript(() => whole)
    const folder = join(folderOfTest(), 'proofs')
    await mkdir(folder)
    const path = join(folder, 'two.json')
    await writeFile(path, `${kept()}${writeEvidence(whole)}`)
    const page = join(folder, 'page.html')
    await runCommand('evidence', path, '--html', '--output', page)
    const open = await runCommand('verify', folder, ...expected, ...configuration)
    expect(open.code).toBe(3)
    expect(open.stdout.trimEnd().split('\n').slice(-3)).toEqual([
      expect.stringMatching(/page\.html {2}INCOMPLETE: /),
      expect.stringMatching(/two\.json {2}INCOMPLETE: /),
      '2 files: 2 INCOMPLETE',
    ])
    expect(await runCommand('complete', folder, '--url', gateway.origin)).toMatchObject({ code: 0 })
    await gateway.stop()
    const closed = await runCommand('verify', folder, ...expected, ...configuration)
    expect([closed.code, closed.stdout.trimEnd().split('\n').at(-1)]).toEqual([
      0,
      '2 files: 2 VERIFIED',
    ])
    const redacted = await runCommand('redact', folder, '--request')
    const lines = redacted.stdout.trimEnd().split('\n')
    expect(lines).toHaveLength(4)
    for (const line of lines) expect(JSON.parse(line).record).not.toHaveProperty('request')
    const line = await verify(await save('line.json', lines[0]), ...expected, ...configuration)
    expect([line.code, line.report.bundle.redacted]).toEqual([3, ['request']])
  })
})
