import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildEvidence } from '../../../attestation/evidence/build-evidence.ts'
import { runCommand } from '../../../support/run-command.ts'

const { bundle } = buildEvidence()
const { hash } = bundle.record
const path = `/gateway/v1/verified/chat/completions/${hash}/evidence`

const publicPath = `/gateway/v1/evidence/${hash}`

let folder: string
let server: Server
let url: string
let answer: string
const asked: { path: string | undefined; authorization: string | undefined }[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-evidence-'))
  server = createServer((request, response) => {
    asked.push({ path: request.url, authorization: request.headers.authorization })
    const isThere = [path, publicPath].includes(String(request.url))
    response.statusCode = isThere ? 200 : 404
    response.end(isThere ? answer : '{"error":{"message":"There is none \\u001b[2J"}}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/gateway/`
})
afterAll(async () => {
  server.close()
  await rm(folder, { recursive: true })
})

describe('affidavit evidence', () => {
  it('evidence gives the bundle exactly as the gateway does, asking with the key', async () => {
    answer = JSON.stringify(bundle, null, 1)
    const { code, stdout, stderr } = await runCommand(
      'evidence',
      `0x${hash}`,
      '--url',
      url,
      '--key',
      'sk-1',
    )
    expect([code, stdout, stderr]).toEqual([0, `${answer}\n`, ''])
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
    expect(await readFile(file, 'utf8')).toBe(`${answer}\n`)
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

  it.each([['ab'], ['zz'.repeat(32)], ['']])('evidence refuses the hash %j', async (text) => {
    expect((await runCommand('evidence', text, '--url', url)).code).toBe(2)
  })
})
