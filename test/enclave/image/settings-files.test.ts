import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { bootConfigurationOf, readConfig } from '#enclave/config.ts'
import { BuildError } from '#enclave/image/build-error.ts'
import type { FileTree } from '#enclave/image/file-tree.ts'
import {
  digestSettings,
  type ImageSettings,
  listBridges,
  writeSettings,
} from '#enclave/image/settings.ts'
import { BUILT_IN_PROVIDERS } from '#enclave/providers/built-in-table.ts'
import { bundledCas } from '#enclave/providers/trusted-cas.ts'

const SETTINGS: ImageSettings = {
  chainId: 8453,
  contract: `0x${'ab'.repeat(20)}`,
  isDevelopment: false,
  limits: {},
  providers: BUILT_IN_PROVIDERS,
  cas: new TextEncoder().encode(bundledCas().pem),
}
const textOf = (tree: FileTree, path: string): string => {
  const entry = tree.get(path)
  return entry?.kind === 'file' ? Buffer.from(entry.data).toString('utf8') : ''
}
/** The configuration that an enclave reads out of an image's files. */
const configOf = (tree: FileTree) => {
  const lines = textOf(tree, 'etc/affidavit/enclave.env').trim().split('\n')
  const variables = Object.fromEntries(lines.map((line) => line.split(/=(.*)/).slice(0, 2)))
  return readConfig(variables, (path) => Buffer.from(textOf(tree, path.slice(1)), 'utf8'))
}
const provider = (origin: string) => ({ name: 'x', origin, path: '/v1', models: ['*'] })

describe('writeSettings', () => {
  it('writeSettings gives files that a production enclave takes for what was asked', () => {
    expect(configOf(writeSettings(SETTINGS))).toMatchObject({
      isProduction: true,
      nsm: 'device',
      chainId: 8453,
      contract: SETTINGS.contract,
      providers: BUILT_IN_PROVIDERS,
      cas: bundledCas(),
    })
  })

  it.each([false, true])(
    'digestSettings digests what the enclave states at boot, development %s',
    (isDevelopment) => {
      const files = writeSettings({ ...SETTINGS, isDevelopment })
      const stated = digestBootConfiguration(bootConfigurationOf(configOf(files)))
      expect(digestSettings(files)).toBe(encodeHex(stated))
    },
  )

  it('digestSettings refuses settings that the enclave would refuse', () => {
    expect(() => digestSettings(writeSettings({ ...SETTINGS, chainId: 0 }))).toThrow(BuildError)
    expect(() => digestSettings(new Map())).toThrow(BuildError)
  })

  it('writeSettings gives the verifier and the bridges their own users, who share the socket alone', () => {
    const files = writeSettings(SETTINGS)
    const users = textOf(files, 'etc/passwd').trim().split('\n')
    expect(users.map((line) => line.split(':').slice(0, 4))).toEqual([
      ['root', 'x', '0', '0'],
      ['enclave', 'x', '10001', '10001'],
      ['bridge', 'x', '10002', '10002'],
    ])
    // No member beside the user itself.
    for (const line of textOf(files, 'etc/group').trim().split('\n'))
      expect(line).toMatch(/^\w+:x:\d+:$/)
    expect(configOf(files).socketMode).toBe(0o660)
  })

  it('writeSettings changes only enclave.env in a development image', () => {
    const [production, development] = [SETTINGS, { ...SETTINGS, isDevelopment: true }].map(
      writeSettings,
    )
    const differing = [...(production ?? [])].filter(
      ([path, entry]) => JSON.stringify(entry) !== JSON.stringify(development?.get(path)),
    )
    expect(differing.map(([path]) => path)).toEqual(['etc/affidavit/enclave.env'])
    expect(configOf(development ?? new Map())).toMatchObject({
      isProduction: false,
      nsm: 'software',
    })
  })

  it('writeSettings gives the enclave the limits of the image', () => {
    const files = writeSettings({ ...SETTINGS, limits: { IDLE_TIMEOUT_MS: '600000' } })
    expect(configOf(files).limits.idleTimeoutMs).toBe(600_000)
  })

  it('writeSettings leads the names of the providers, and no others, to bridges', () => {
    const hosts = textOf(writeSettings(SETTINGS), 'etc/hosts').trim().split('\n')
    expect(hosts[0]).toBe('127.0.0.1 localhost')
    const names = BUILT_IN_PROVIDERS.map(({ origin }) => new URL(origin).hostname)
    expect(hosts.slice(1).map((line) => line.split(' ')[1])).toEqual(names)
  })
})

describe('listBridges', () => {
  it('listBridges gives each host an address, and each host and port a vsock port', () => {
    const bridges = listBridges(
      ['https://a.test', 'https://b.test:8443', 'https://a.test:444', 'https://a.test'].map(
        provider,
      ),
    )
    expect(bridges).toEqual([
      { host: 'a.test', address: '127.0.0.2', port: 443, vsockPort: 8002 },
      { host: 'b.test', address: '127.0.0.3', port: 8443, vsockPort: 8003 },
      { host: 'a.test', address: '127.0.0.2', port: 444, vsockPort: 8004 },
    ])
  })

  it('listBridges bridges no provider on a loopback host', () => {
    expect(
      listBridges(['http://127.0.0.1:80', 'https://localhost', 'https://[::1]'].map(provider)),
    ).toEqual([])
  })
})
