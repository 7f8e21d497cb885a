import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { BuildError } from '#enclave/image/build-error.ts'
import { textFile } from '#enclave/image/file-tree.ts'
import { readImageSettings } from '#enclave/image/settings.ts'
import { folderOfFile } from '../../support/folders.ts'

const folder = folderOfFile()

const providersFile = join(folder, 'providers.json')
const caFile = join(folder, 'cas.pem')
writeFileSync(caFile, rootCertificates[0] ?? '')

const entryOf = (origin: string, name = 'one') => ({
  name,
  origin,
  path: '/v1/chat/completions',
  models: ['m'],
})

function read(table: unknown, { isDevelopment = false } = {}) {
  writeFileSync(providersFile, typeof table === 'string' ? table : JSON.stringify(table))
  const options = {
    chainId: 1,
    contract: `0x${'ab'.repeat(20)}`,
    isDevelopment,
    limits: {},
    providersFile,
    caFile,
  }
  return readImageSettings(options, { node: textFile('', 0o755), cache: folder })
}

describe('the settings of an image', () => {
  it('the settings of an image have the providers and CAs of the files, byte for byte', async () => {
    const { providers, cas } = await read([entryOf('https://api.example.com:8443')])
    expect(providers.map(({ origin }) => origin)).toEqual(['https://api.example.com:8443'])
    expect(Buffer.from(cas).toString()).toBe(rootCertificates[0])
  })

  it.each([
    ['an http origin', [entryOf('http://127.0.0.1:8080')], 'https origins alone'],
    ['an address', [entryOf('https://192.0.2.1')], 'the name of a host'],
    ['the enclave itself', [entryOf('https://localhost:8443')], 'the name of a host'],
    ['a line end in a host', [entryOf('https://a\n10.0.0.1 b')], 'origin'],
    ['a name twice', [entryOf('https://a.example'), entryOf('https://b.example')], 'once'],
    ['no table', '{', 'expected'],
  ])('the settings of an image refuse %s', async (_, table, message) => {
    const refused = read(table)
    await expect(refused).rejects.toThrow(BuildError)
    await expect(refused).rejects.toThrow(message)
  })

  it('the settings of a development image refuse a table without room for the demo entry', async () => {
    const table = [entryOf('https://a.example', 'demo')]
    await expect(read(table, { isDevelopment: true })).rejects.toThrow(
      'room for an entry called demo',
    )
    expect((await read(table)).providers).toHaveLength(1)
  })
})
