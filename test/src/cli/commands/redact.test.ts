import { beforeAll, describe, expect, it } from 'vitest'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { buildEvidence } from '../../../attestation/evidence/build-evidence.ts'
import { buildStream } from '../../../attestation/evidence/build-stream.ts'
import { folderOfFile, saverIn } from '../../../support/folders.ts'
import { runCommand } from '../../../support/run-command.ts'

const { bundle, policy } = buildEvidence()

const save = saverIn(folderOfFile())
let file: string
beforeAll(async () => {
  file = await save('bundle.json', bundle)
})

describe('affidavit redact', () => {
  it.each([
    [['--request'], ['request'], ['request hash']],
    [['--response'], ['response'], ['response hash']],
    [
      ['--request', '--response'],
      ['request', 'response'],
      ['request hash', 'response hash'],
    ],
  ])(
    'redact with %j makes a bundle that says what is open, and is verifiable for all the rest',
    async (words, parts, open) => {
      const { code, stdout, stderr } = await runCommand('redact', file, ...words)
      expect(code).toBe(0)
      for (const name of open) expect(stderr).toContain(`are no longer possible: "${name}"`)
      const report = await verifyBundle(parseExactJson(Buffer.from(stdout)), policy)
      expect(report).toMatchObject({ verdict: 'incomplete', redacted: parts, open })
      expect(report.checks.filter(({ outcome }) => outcome === 'failed')).toEqual([])
      const written = JSON.parse(stdout).record
      expect(parts.map((part) => [written[part], written[`${part}_hash`]])).toEqual(
        parts.map((part) => [undefined, bundle.record.receipt[`${part}_hash` as 'request_hash']]),
      )
    },
  )

  it('redact refuses a part that is left out already, and takes the other one', async () => {
    const once = await save(
      'once.json',
      JSON.parse((await runCommand('redact', file, '--request')).stdout),
    )
    const again = await runCommand('redact', once, '--request', '--response')
    expect([again.code, again.stdout]).toEqual([1, ''])
    expect(again.stderr).toContain('this evidence already has no request')
    expect((await runCommand('redact', once, '--response')).code).toBe(0)
  })

  it('redact leaves the answer of a stream out, whose response is there as events alone', async () => {
    const stream = await save('stream.json', buildStream().bundle)
    const { code, stdout } = await runCommand('redact', stream, '--response')
    expect(code).toBe(0)
    expect(stdout).not.toContain('nothing.')
    const again = await save('again.json', JSON.parse(stdout))
    expect((await runCommand('redact', again, '--response')).code).toBe(1)
  })

  it('redact refuses a part that is not the signed one, which leaving it out would hide', async () => {
    const record = { ...bundle.record, request: { model: 'demo/echo', messages: [] } }
    const altered = await save('altered.json', { ...bundle, record })
    const { code, stderr } = await runCommand('redact', altered, '--request')
    expect([code, stderr]).toEqual([1, expect.stringContaining('not the request that was signed')])
  })

  it('redact refuses what is not a bundle, and a command that does not say what to leave out', async () => {
    expect(
      (await runCommand('redact', await save('record.json', bundle.record), '--request')).code,
    ).toBe(2)
    const junk = await save('junk.json', 'junk')
    expect((await runCommand('redact', junk, '--request')).code).toBe(2)
    expect((await runCommand('redact', file)).code).toBe(2)
  })
})
