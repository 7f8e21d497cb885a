import { afterEach, describe, expect, it } from 'vitest'
import { readGatewaySettings } from '#src/cli/config.ts'
import {
  demandsAttestation,
  readAttestationPolicy,
  readBundlePolicy,
  readRoots,
} from '#src/cli/expected-evidence.ts'
import type { AttestationOptions, BundleOptions } from '#src/cli/options.ts'
import { loadPolicy } from '#src/cli/policy-file.ts'
import { openExpectedReleases, readReleaseTrust } from '#src/cli/release/accepted-releases.ts'
import { readReleaseKey } from '#src/cli/release/release-files.ts'

const OPTIONS: Readonly<Required<Record<keyof (AttestationOptions & BundleOptions), unknown>>> = {
  policy: '/nowhere',
  pcr: new Map([[0, new Uint8Array(48).fill(1)]]),
  anyMeasurement: true,
  allowDebug: true,
  root: ['/nowhere'],
  crl: ['/nowhere'],
  release: ['/nowhere'],
  releaseKey: ['ab'.repeat(32)],
  releaseSigners: 9,
  configuration: ['ab'.repeat(32)],
  rpc: 'http://127.0.0.1:1',
  confirmations: 9,
  allowOutcome: ['client_disconnected'],
}

let polluted = ''

function pollute(name: string, value: unknown): void {
  polluted = name
  Object.defineProperty(Object.prototype, name, {
    value,
    configurable: true,
    writable: true,
    enumerable: false,
  })
}

afterEach(() => {
  Reflect.deleteProperty(Object.prototype, polluted)
})

const readAll = async () => [
  demandsAttestation({}),
  await readAttestationPolicy({}),
  await readBundlePolicy({}),
  await readReleaseTrust({}),
  await openExpectedReleases({}),
]

describe('options of the command line that Object.prototype has', () => {
  it.each(Object.entries(OPTIONS))(
    'an option that Object.prototype has is not read: %s',
    async (name, value) => {
      const honest = await readAll()
      pollute(name, value)
      expect(await readAll()).toEqual(honest)
    },
  )

  it('a member of Object.prototype is not read as a variable of the environment', () => {
    pollute('AFFIDAVIT_API_KEY', 'sk-somebody-else')
    expect(readGatewaySettings({}).apiKey).toBeNull()
  })
})

it.each([
  ['--policy', loadPolicy],
  ['--root', readRoots],
  ['--release-key', readReleaseKey],
])('%s takes no URL, because a gateway could serve its own policy', async (name, read) => {
  await expect(read('http://127.0.0.1:9/file')).rejects.toMatchObject({
    exitCode: 2,
    message: expect.stringMatching(new RegExp(`^${name}: expected .*, got a URL: `)),
  })
})
