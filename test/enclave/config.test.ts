import { describe, expect, it } from 'vitest'
import { ConfigError, readConfig } from '#enclave/config.ts'
import { BUILT_IN_PROVIDERS } from '#enclave/providers/built-in-table.ts'
import { bundledCas } from '#enclave/providers/trusted-cas.ts'

const inProduction = {
  ENCLAVE_SOCKET: '/tmp/enclave.sock',
  CHAIN_ID: '31337',
  CONTRACT_ADDRESS: '0x5FbDB2315678afecb367f032d93F642f64180aa3',
}
const HEAP_BYTES = 2 ** 29
const DESCRIPTORS = 1_000
const needed = { ...inProduction, NSM_SOCKET: '/tmp/nsm.sock' }
const production = { ...inProduction, NODE_ENV: 'production', NSM: 'device' }
const entry = { name: 'a', origin: 'https://a.example', path: '/v1', models: ['*'] }

function read(
  environment: Readonly<Record<string, string>>,
  files: Readonly<Record<string, string>> = {},
) {
  const readFile = (path: string) => {
    const text = files[path]
    if (text === undefined) throw new Error(`ENOENT: no such file, ${path}`)
    return Buffer.from(text)
  }
  return readConfig(environment, readFile, HEAP_BYTES, DESCRIPTORS)
}

function faultsOf(
  environment: Readonly<Record<string, string>>,
  files?: Readonly<Record<string, string>>,
) {
  try {
    read(environment, files)
  } catch (error) {
    if (error instanceof ConfigError) return error.faults
    throw error
  }
  return []
}

describe('readConfig', () => {
  it('readConfig needs a socket, a chain and a contract, and has defaults for the rest', () => {
    expect(read(needed)).toEqual({
      isProduction: false,
      socketPath: '/tmp/enclave.sock',
      socketMode: 0o600,
      nsm: 'software',
      nsmSocket: '/tmp/nsm.sock',
      chainId: 31337,
      contract: '0x5fbdb2315678afecb367f032d93f642f64180aa3',
      providers: BUILT_IN_PROVIDERS,
      cas: bundledCas(),
      limits: {
        connectTimeoutMs: 10_000,
        firstByteTimeoutMs: 600_000,
        idleTimeoutMs: 300_000,
        answerTimeoutMs: 3_600_000,
        drainTimeoutMs: 60_000,
        answerBytesMax: 25_165_824,
        pendingBytesMax: HEAP_BYTES / 2,
        callsMax: 400,
      },
      attestationRenewMs: 3_600_000,
      shutdownGraceMs: 30_000,
    })
  })

  it('readConfig puts the demo provider before all others', () => {
    const { providers } = read({ ...needed, DEMO_PROVIDER_ORIGIN: 'http://127.0.0.1:4000' })
    expect(providers[0]).toEqual({
      name: 'demo',
      origin: 'http://127.0.0.1:4000',
      path: '/v1/chat/completions',
      models: ['demo/*'],
      endpoints: { responses: { path: '/v1/responses' }, messages: { path: '/v1/messages' } },
    })
    expect(providers.slice(1)).toEqual(BUILT_IN_PROVIDERS)
  })

  it('readConfig reports all faults at once', () => {
    const faults = faultsOf({
      NSM: 'tpm',
      IDLE_TIMEOUT_MS: '1.5',
      ANSWER_BYTES_MAX: '-1',
      PROVIDERS_FILE: 'none',
    })
    expect(faults.map((fault) => fault.split(':')[0]).sort()).toEqual([
      'ANSWER_BYTES_MAX',
      'CHAIN_ID',
      'CONTRACT_ADDRESS',
      'ENCLAVE_SOCKET',
      'IDLE_TIMEOUT_MS',
      'NSM',
      'PROVIDERS_FILE',
    ])
  })

  it.each([
    ['a socket path over 107 bytes', { ENCLAVE_SOCKET: `/${'é'.repeat(54)}` }],
    ['a demo provider on another machine', { DEMO_PROVIDER_ORIGIN: 'https://demo.example' }],
    ['a simulated TEE without TLS', { DEMO_TEE_ORIGIN: 'http://127.0.0.1:1' }],
    ['a limit of 0', { CONNECT_TIMEOUT_MS: '0' }],
    ['a document renewed after its leaf has expired', { ATTESTATION_RENEW_MS: '10800000' }],
  ])('readConfig refuses settings with %s', (_, change) => {
    expect(faultsOf({ ...needed, ...change })).toHaveLength(1)
  })

  it.each([
    [
      'a provider file with a wrong entry',
      { PROVIDERS_FILE: 'f' },
      JSON.stringify([{ ...entry, origin: 'http://a.example' }]),
    ],
    ['a CA file without certificates', { PROVIDER_CA_FILE: 'f' }, ''],
  ])('readConfig refuses settings with %s', (_, change, text) => {
    expect(faultsOf({ ...needed, ...change }, { f: text })).toHaveLength(1)
  })
})

describe('NSM_SOCKET', () => {
  it('NSM_SOCKET is required with the software NSM, and leads to its socket', () => {
    expect(faultsOf({ ...needed, NSM_SOCKET: '' })).toEqual([
      'NSM_SOCKET: required with NSM=software',
    ])
    expect(read(needed).nsmSocket).toBe('/tmp/nsm.sock')
  })

  it.each([['more than the kernel takes of a path', { NSM_SOCKET: 's'.repeat(108) }]])(
    'NSM_SOCKET is refused with %s',
    (_, change) => {
      expect(faultsOf({ ...needed, ...change })).toEqual([expect.stringMatching(/^NSM_SOCKET: /)])
    },
  )

  it('NSM_SOCKET is refused in production, whatever it holds', () => {
    for (const path of ['/tmp/nsm.sock', 's'.repeat(108)])
      expect(faultsOf({ ...production, NSM_SOCKET: path })).toContain(
        'NSM_SOCKET: a software NSM has no place in production',
      )
  })
})

describe('in production', () => {
  it('production accepts a real module and https providers', () => {
    expect(read(production)).toMatchObject({ isProduction: true, nsm: 'device' })
  })

  it.each([
    ['the software NSM', { NSM: 'software' }],
    ['a demo provider', { DEMO_PROVIDER_ORIGIN: 'http://127.0.0.1:1' }],
    ['a simulated TEE', { DEMO_TEE_ORIGIN: 'https://127.0.0.1:1' }],
    ['a provider over plain http', { PROVIDERS_FILE: 'f' }],
  ])('production refuses %s: its configuration is a fault', (_, change) => {
    const table = (name: string) =>
      JSON.stringify([{ ...entry, name, origin: 'http://127.0.0.1:1' }])
    const files = { f: table('other'), demo: table('demo') }
    expect(faultsOf({ ...production, ...change }, files)).toHaveLength(1)
  })
})
