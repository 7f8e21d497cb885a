import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { afterAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { bootConfigurationOf, readConfig } from '#enclave/config.ts'
import { BuildError } from '#enclave/image/build-error.ts'
import { digestSettings, type ImageSettings, writeSettings } from '#enclave/image/settings.ts'
import { BUILT_IN_PROVIDERS } from '#enclave/providers/built-in-table.ts'

const folder = mkdtempSync(join(tmpdir(), 'boot-digest-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const SETTINGS: ImageSettings = {
  chainId: 8453,
  contract: `0x${'ab'.repeat(20)}`,
  isDevelopment: false,
  providers: BUILT_IN_PROVIDERS,
  cas: new TextEncoder().encode(`${rootCertificates[0]}\n`),
}

/**
 * What an enclave in the image would say, from files on a disk and variables as its init script
 * sets them.
 */
function bootFrom(settings: ImageSettings): string {
  const tree = writeSettings(settings)
  for (const [path, entry] of tree) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    if (entry.kind === 'file') writeFileSync(join(folder, path), entry.data)
  }
  const config = readConfig({
    NODE_ENV: settings.isDevelopment ? 'development' : 'production',
    NSM: settings.isDevelopment ? 'software' : 'device',
    CHAIN_ID: String(settings.chainId),
    CONTRACT_ADDRESS: settings.contract,
    ENCLAVE_SOCKET: '/run/affidavit/enclave.sock',
    PROVIDERS_FILE: join(folder, 'etc/affidavit/providers.json'),
    PROVIDER_CA_FILE: join(folder, 'etc/affidavit/provider-cas.pem'),
    ...(settings.isDevelopment
      ? { NSM_SOCKET: '/run/nsm/nsm.sock', DEMO_PROVIDER_ORIGIN: 'http://127.0.0.1:8090' }
      : {}),
  })
  return encodeHex(digestBootConfiguration(bootConfigurationOf(config)))
}

describe('digestSettings', () => {
  it.each([false, true])(
    'digestSettings digests what the enclave states at boot, development %s',
    (isDevelopment) => {
      const settings = { ...SETTINGS, isDevelopment }
      expect(digestSettings(writeSettings(settings))).toBe(bootFrom(settings))
    },
  )

  it('the digest of the settings differs with chain, contract, providers and CAs', () => {
    const others: readonly Partial<ImageSettings>[] = [
      {},
      { chainId: 1 },
      { contract: `0x${'cd'.repeat(20)}` },
      { providers: BUILT_IN_PROVIDERS.slice(1) },
      { cas: new TextEncoder().encode(`${rootCertificates[1]}\n`) },
    ]
    const digests = others.map((other) => digestSettings(writeSettings({ ...SETTINGS, ...other })))
    expect(new Set(digests).size).toBe(others.length)
  })

  it('digestSettings refuses settings that the enclave would refuse', () => {
    const tree = writeSettings({ ...SETTINGS, chainId: 0 })
    expect(() => digestSettings(tree)).toThrow(BuildError)
    expect(() => digestSettings(new Map())).toThrow(BuildError)
  })
})
