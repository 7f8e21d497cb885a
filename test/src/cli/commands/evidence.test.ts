import { execFileSync } from 'node:child_process'
import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { writeEvidence } from '#attestation/evidence/create-evidence.ts'
import { putEvidence } from '#attestation/report/evidence-page.ts'
import { buildEvidence } from '../../../attestation/evidence/build-evidence.ts'
import { folderOfFile } from '../../../support/folders.ts'
import { runCommand } from '../../../support/run-command.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'

const { bundle } = buildEvidence()
const { hash } = bundle.record
const path = `/gateway/v1/verified/records/${hash}/evidence`

const publicPath = `/gateway/v1/evidence/${hash}`

const folder = folderOfFile()
let server: ScriptedEndpoint
let url: string
let answer: string
/** Where the gateway has bundles. */
const served: readonly string[] = [path, publicPath]
const asked: { path: string | undefined; authorization: string | undefined }[] = []

beforeAll(async () => {
  server = await startScriptedEndpoint((request, response) => {
    asked.push({ path: request.url, authorization: request.headers.authorization })
    const isThere = served.includes(request.url)
    response.statusCode = isThere ? 200 : 404
    response.end(isThere ? answer : '{"error":{"message":"There is none \\u001b[2J"}}')
  })
  url = `${server.origin}/gateway/`
})
afterAll(() => server.stop())

describe('affidavit evidence', () => {
  it('evidence prints the evidence of the gateway as one line, asking with the key', async () => {
    answer = JSON.stringify(bundle, null, 1)
    const { code, stdout, stderr } = await runCommand(
      'evidence',
      `0x${hash}`,
      '--url',
      url,
      '--key',
      'sk-1',
    )
    expect([code, stdout, stderr]).toEqual([0, writeEvidence(bundle), ''])
    expect(asked.at(-1)).toEqual({ path, authorization: 'Bearer sk-1' })
  })

  it('evidence and verify ask for the public bundle where they have no key', async () => {
    answer = JSON.stringify(bundle)
    for (const command of ['evidence', 'verify']) {
      const { code } = await runCommand(command, hash, '--url', url)
      expect([command, code]).toEqual([command, command === 'verify' ? 1 : 0])
      expect(asked.at(-1)).toEqual({ path: publicPath, authorization: undefined })
    }
  })

  it('evidence writes a file that only its owner can read, and leaves nothing else behind', async () => {
    answer = JSON.stringify(bundle)
    const file = join(folder, 'bundle.json')
    const { code, stdout } = await runCommand('evidence', hash, '--url', url, '--output', file)
    expect([code, stdout]).toEqual([0, ''])
    expect(await readFile(file, 'utf8')).toBe(writeEvidence(bundle))
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(await readdir(folder)).toEqual(['bundle.json'])
  })

  it('evidence says why a bundle has no block', async () => {
    const noBlock = { reason: 'not_mined', transaction: bundle.record.tx_hash }
    answer = JSON.stringify({ ...bundle, block: null, no_block: noBlock })
    const { code, stderr } = await runCommand('evidence', hash, '--url', url)
    expect([code, stderr]).toEqual([
      0,
      expect.stringMatching(/\nThe gateway says that the transaction was in no block .*\.\n$/),
    ])
  })

  it.each([
    ['something else', () => '{"format":"other"}'],
    ['a bundle with one name twice', () => JSON.stringify(bundle).replace('{', '{"version":1,')],
    [
      'the bundle of another completion',
      () => JSON.stringify({ ...bundle, record: { ...bundle.record, hash: 'ab'.repeat(32) } }),
    ],
  ])('evidence refuses %s from the gateway', async (_, given) => {
    answer = given()
    const { code, stdout } = await runCommand('evidence', hash, '--url', url)
    expect([code, stdout]).toEqual([1, ''])
  })

  it('evidence tells what the gateway says when there is no bundle, without its control characters', async () => {
    const { code, stderr } = await runCommand('evidence', 'ab'.repeat(32), '--url', url)
    expect([code, stderr]).toEqual([3, expect.stringContaining('404: There is none \\u{1b}[2J')])
  })

  it('evidence --html writes a page that verify takes', async () => {
    answer = JSON.stringify(bundle, null, 1)
    const file = join(folder, 'evidence.html')
    const words = ['evidence', hash, '--url', url, '--html'] as const
    const run = await runCommand(...words, '--output', file)
    expect([run.code, run.stdout]).toEqual([0, ''])
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    const page = await readFile(file, 'utf8')
    expect((await runCommand(...words)).stdout).toBe(page)
    expect(page.startsWith('<!doctype html>')).toBe(true)

    const json = join(folder, 'evidence.json')
    await writeFile(json, answer)
    const ofPage = await runCommand('verify', file, '--json')
    const ofJson = await runCommand('verify', json, '--json')
    expect(ofPage.stdout).toBe(ofJson.stdout)
    expect(ofPage.code).toBe(ofJson.code)
    const named = JSON.parse((await runCommand('verifier', '--json')).stdout)
    expect(ofPage.stderr).toContain(`The SHA-256 of its verifier is ${named.verifier_sha256}`)
  })

  it('verifier prints the digest that the command of its help computes of a saved page', async () => {
    const file = join(folder, 'page.html')
    const { stdout } = await runCommand('verifier', '--output', file)
    const [, digest] = /^verifier {2}SHA-256 ([0-9a-f]{64})$/m.exec(stdout) ?? []
    await writeFile(file, putEvidence(await readFile(file, 'utf8'), { a: '</script>' }))
    const help = (await runCommand('verifier', '--help')).stdout
    const [, command = ''] = /^ {2}(LC_ALL=C grep .*)$/m.exec(help) ?? []
    const computed = execFileSync('sh', ['-c', command.replace('FILE.html', file)], {
      encoding: 'utf8',
    })
    expect(computed).toBe(`${digest}  -\n`)
  })
})
