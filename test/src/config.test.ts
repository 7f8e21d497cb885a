import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readGatewayConfig } from '#src/config.ts'
import { memoryLimitBytes } from '#src/runtime/memory.ts'
import { ConfigurationError } from '#src/runtime/read-settings.ts'

const REMOTE_CHAIN = {
  CHAIN_RPC_URL: 'https://rpc.example.com',
  RELAYER_PRIVATE_KEY: `0x${'A1'.repeat(32)}`,
  CONTRACT_ADDRESS: `0x${'B2'.repeat(20)}`,
}

const PRODUCTION = {
  ...REMOTE_CHAIN,
  NODE_ENV: 'production',
  DATABASE_URL: 'postgres://db/a',
  ENCLAVE_URL: 'unix:/run/enclave.sock',
}

function faultsOf(environment: Record<string, string>): readonly string[] {
  try {
    readGatewayConfig(environment)
  } catch (fault) {
    if (fault instanceof ConfigurationError) return fault.faults
    throw fault
  }
  return []
}

describe('readGatewayConfig', () => {
  it('readGatewayConfig starts every part itself when nothing is set', () => {
    const config = readGatewayConfig({ DATABASE_URL: '', PORT: '' })
    expect(config).toMatchObject({
      isProduction: false,
      host: '127.0.0.1',
      port: 3000,
      dataFolder: resolve('.affidavit'),
      databaseUrl: null,
      chain: { kind: 'local', port: 8545 },
      confirmations: 1,
      headAttestationIntervalMs: 600_000,
      enclave: { kind: 'local', variables: {}, demoVariables: {}, refusedFolder: null },
      providerModels: [],
      devApiKey: null,
      isHistoryOpen: true,
      bodyBytesMax: 10_485_760,
    })
    expect(config.credentials.size).toBe(0)
  })

  it('readGatewayConfig has what bundles say of their source only where the operator said it', () => {
    expect(readGatewayConfig({}).source).toBeNull()
    expect(readGatewayConfig({ ...PRODUCTION, HISTORY_ALL: 'false' }).source).toBeNull()
    const releases = 'https://example.com/releases.json?all'
    const all = { PUBLIC_URL: 'https://api.example.com/base/', OPERATOR_NAME: 'Beispiel & Söhne' }
    expect(readGatewayConfig({ ...all, RELEASES_URL: releases }).source).toEqual({
      gateway: 'https://api.example.com/base',
      operator: 'Beispiel & Söhne',
      releases,
    })
    expect(readGatewayConfig({ RELEASES_URL: releases }).source).toEqual({ releases })
  })

  it.each([
    ['PUBLIC_URL', 'https://beispiel-söhne.example', 'expected an ASCII URL'],
    ['PUBLIC_URL', `https://h/${'x'.repeat(300)}`, 'at most 300 characters'],
    ['PUBLIC_URL', 'https://user:secret@h', 'without user, password'],
    ['PUBLIC_URL', 'api.example.com', 'expected a URL that begins with http: or https:'],
    ['RELEASES_URL', 'javascript:alert(1)', 'expected a URL that begins with http: or https:'],
    ['RELEASES_URL', 'https://user:secret@h/list', 'without user and password'],
    ['RELEASES_URL', 'https://h/a list', 'expected an ASCII URL'],
    ['OPERATOR_NAME', 'Example\u001b[2J', 'without control characters'],
    ['OPERATOR_NAME', 'Example  Ltd', 'blanks at an end or side by side'],
    ['OPERATOR_NAME', 'x'.repeat(201), 'a name of 1 to 200 characters'],
  ])('readGatewayConfig refuses a %s of %j and says what is expected', (name, text, said) => {
    expect(faultsOf({ [name]: text })).toContainEqual(
      expect.stringMatching(new RegExp(`^${name}: .*${said}`)),
    )
    expect(faultsOf({ [name]: text }).join()).not.toContain('secret')
  })

  it('readGatewayConfig takes several processes only with parts that they can share', () => {
    expect(faultsOf({ GATEWAY_PROCESSES: '2' })).toEqual([
      'DATABASE_URL: expected together with GATEWAY_PROCESSES',
      'ENCLAVE_URL: expected together with GATEWAY_PROCESSES',
      'CHAIN_RPC_URL: expected together with GATEWAY_PROCESSES',
    ])
    expect(readGatewayConfig({ GATEWAY_PROCESSES: '1' }).processes).toBe(1)
    const several = { ...PRODUCTION, HISTORY_ALL: 'false', GATEWAY_PROCESSES: '3' }
    expect(readGatewayConfig(several).processes).toBe(3)
  })

  it('several processes together take no more memory and calls by default than one process', () => {
    const [one, four] = ['1', '4'].map((processes) =>
      readGatewayConfig({ ...PRODUCTION, HISTORY_ALL: 'false', GATEWAY_PROCESSES: processes }),
    )
    const least = 64 * 1024 * 1024
    const quarter = Math.ceil((one?.memoryBytesMax ?? 0) / 4)
    expect(four?.memoryBytesMax).toBeLessThanOrEqual(Math.max(least, quarter))
    expect(four?.verifiedCallsMax).toBeLessThanOrEqual(512 / 4)
    expect(memoryLimitBytes(4) * 4).toBeLessThanOrEqual(memoryLimitBytes(1))
  })

  it('readGatewayConfig uses the real parts that are named', () => {
    const config = readGatewayConfig({
      ...REMOTE_CHAIN,
      CHAIN_ID: '11155111',
      DATABASE_URL: 'postgres://u:p@db.example.com/affidavit',
      ENCLAVE_URL: 'unix:/run/enclave.sock',
      HISTORY_ALL: 'false',
      HEAD_ATTESTATION_INTERVAL_MS: '1000',
      MAX_FEE_PER_GAS_GWEI: '0.5',
      MAX_PRIORITY_FEE_GWEI: '0.000000001',
    })
    expect(config).toMatchObject({
      databaseUrl: 'postgres://u:p@db.example.com/affidavit',
      chain: {
        kind: 'remote',
        rpcUrl: 'https://rpc.example.com',
        relayerKey: `0x${'a1'.repeat(32)}`,
        contract: `0x${'b2'.repeat(20)}`,
        chainId: 11155111,
      },
      confirmations: 12,
      headAttestationIntervalMs: 1000,
      enclave: { kind: 'remote', socketPaths: ['/run/enclave.sock'] },
      isHistoryOpen: false,
      fees: { maxFeePerGasWei: 500_000_000n, maxPriorityFeePerGasWei: 1n },
    })
  })

  it('readGatewayConfig takes origins as browsers send them, and every one as *', () => {
    const originsOf = (text: string) => readGatewayConfig({ CORS_ORIGINS: text }).corsOrigins
    expect(originsOf('https://app.example, http://localhost:5173')).toEqual([
      'https://app.example',
      'http://localhost:5173',
    ])
    expect([originsOf('*'), readGatewayConfig({}).corsOrigins]).toEqual([['*'], []])
  })

  it.each([
    'https://app.example/',
    'https://App.example',
    'app.example',
    'https://a.example:443',
    'null',
    'ftp://a',
  ])('readGatewayConfig refuses the origin %s, which no browser sends', (origin) => {
    expect(faultsOf({ CORS_ORIGINS: origin })).toEqual([
      expect.stringMatching(/^CORS_ORIGINS: expected/),
    ])
  })

  it('readGatewayConfig trusts the proxies that are named, and by default none', () => {
    const proxiesOf = (text: string) => readGatewayConfig({ TRUSTED_PROXIES: text }).trustedProxies
    expect(proxiesOf('10.0.0.0/8, ::1,2001:db8::/32')).toEqual([
      '10.0.0.0/8',
      '::1',
      '2001:db8::/32',
    ])
    expect(proxiesOf('')).toEqual([])
    for (const text of ['10.0.0.0/33', '10.0.0/8', 'proxy.example', '::1/129', '1.2.3.4/8/9', '*'])
      expect(faultsOf({ TRUSTED_PROXIES: text })).toEqual([
        expect.stringMatching(/^TRUSTED_PROXIES: expected IP addresses/),
      ])
  })

  it('readGatewayConfig opens metrics only where it is told to, by default on loopback', () => {
    const metricsOf = (environment: Record<string, string>) =>
      readGatewayConfig(environment).metrics
    expect(metricsOf({})).toBeNull()
    expect(metricsOf({ METRICS_HOST: '0.0.0.0' })).toBeNull()
    expect(metricsOf({ METRICS_PORT: '9464' })).toEqual({ host: '127.0.0.1', port: 9464 })
  })

  it('readGatewayConfig takes several enclaves', () => {
    expect(readGatewayConfig({ ENCLAVE_URL: 'unix:/a.sock, unix:///b.sock' }).enclave).toEqual({
      kind: 'remote',
      socketPaths: ['/a.sock', '/b.sock'],
    })
  })

  it('readGatewayConfig takes accepted releases together with who signs them', () => {
    const key = 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a'
    const file = '/etc/affidavit/releases.json'
    const config = readGatewayConfig({ ENCLAVE_RELEASES_FILE: file, RELEASE_KEY: key })
    expect([config.releases, readGatewayConfig({}).releases]).toEqual([{ file, keys: [key] }, null])
    expect(faultsOf({ ENCLAVE_RELEASES_FILE: file })).toEqual([
      expect.stringMatching(/^RELEASE_KEY: /),
    ])
    expect(faultsOf({ RELEASE_KEY: key })).toEqual([expect.stringMatching(/^RELEASE_KEY: /)])
    const faults = faultsOf({
      ENCLAVE_RELEASES_FILE: file,
      RELEASE_KEY: `${key},${'00'.repeat(32)}`,
    })
    expect(faults).toEqual([expect.stringMatching(/^RELEASE_KEY: expected public keys/)])
  })

  it.each([
    'http://127.0.0.1:9',
    'unix:relative.sock',
    `unix:/${'x'.repeat(107)}`,
    'unix:/a.sock,unix:///a.sock',
    'unix:/a.sock,/b.sock',
  ])('readGatewayConfig refuses %s for the enclave', (url) => {
    expect(faultsOf({ ENCLAVE_URL: url })).toHaveLength(1)
  })

  it('readGatewayConfig keeps credentials by provider name', () => {
    const config = readGatewayConfig({
      OPENAI_API_KEY: 'sk-1',
      GOOGLE_API_KEY: 'g-2',
      XAI_API_KEY: '',
    })
    expect([...config.credentials]).toEqual([
      ['openai', 'sk-1'],
      ['google', 'g-2'],
    ])
    expect(
      readGatewayConfig({ GOOGLE_API_KEY: 'a', GEMINI_API_KEY: 'b' }).credentials.get('google'),
    ).toBe('b')
  })

  it('readGatewayConfig gives the enclave and the demo provider their own variables and no secret', () => {
    const config = readGatewayConfig({
      OPENAI_API_KEY: 'sk-1',
      IDLE_TIMEOUT_MS: '500',
      PROVIDERS_FILE: 'a.json',
      DEMO_DELAY_MS: '5',
    })
    expect(config.enclave).toEqual({
      kind: 'local',
      count: 1,
      variables: { IDLE_TIMEOUT_MS: '500', PROVIDERS_FILE: 'a.json' },
      demoVariables: { DEMO_DELAY_MS: '5' },
      refusedFolder: null,
    })
  })

  it.each(Object.keys(REMOTE_CHAIN))(
    'readGatewayConfig refuses %s without the other two',
    (name) => {
      const given = { [name]: REMOTE_CHAIN[name as keyof typeof REMOTE_CHAIN] }
      expect(faultsOf(given)).toHaveLength(2)
      expect(
        faultsOf(given).every((fault) => fault.endsWith(`: expected together with ${name}`)),
      ).toBe(true)
    },
  )

  it('readGatewayConfig refuses CHAIN_ID without a chain to compare it with', () => {
    expect(faultsOf({ CHAIN_ID: '1' })).toEqual([
      expect.stringContaining('CHAIN_ID: expected only together with'),
    ])
  })

  it.each(['999', '0', '1.5', '86400001'])(
    'readGatewayConfig refuses %s as the interval of head attestations',
    (interval) => {
      expect(faultsOf({ HEAD_ATTESTATION_INTERVAL_MS: interval })).toEqual([
        expect.stringContaining('HEAD_ATTESTATION_INTERVAL_MS: '),
      ])
    },
  )

  it('readGatewayConfig refuses a tip above the cap', () => {
    expect(faultsOf({ MAX_FEE_PER_GAS_GWEI: '1' })).toEqual([
      expect.stringContaining('MAX_PRIORITY_FEE_GWEI'),
    ])
  })

  it('readGatewayConfig refuses everything embedded, simulated or for demonstration in production, in one report', () => {
    expect(
      faultsOf({ NODE_ENV: 'production', DEV_API_KEY: 'abcdefgh' }).map((fault) =>
        fault.split(',').at(-1),
      ),
    ).toEqual([
      ' which refuses the embedded database',
      ' which refuses the local chain',
      ' which refuses an enclave with a simulated security module',
      ' which refuses the demo provider',
      ' then every account reads the prompts of all accounts',
      ' which refuses a fixed key',
    ])
  })

  it('readGatewayConfig demands in production that somebody says who reads whose completions', () => {
    for (const given of [PRODUCTION, { ...PRODUCTION, HISTORY_ALL: '' }])
      expect(faultsOf(given)).toEqual([
        expect.stringMatching(/^HISTORY_ALL: expected in production/),
      ])
    for (const isOpen of [true, false])
      expect(readGatewayConfig({ ...PRODUCTION, HISTORY_ALL: String(isOpen) }).isHistoryOpen).toBe(
        isOpen,
      )
  })

  it('readGatewayConfig takes staging for production alone, with a log, and without expectations of hardware', () => {
    const staging = { ...PRODUCTION, HISTORY_ALL: 'false', AFFIDAVIT_STAGING: 'true' }
    expect(readGatewayConfig(staging)).toMatchObject({ isProduction: true, isStaging: true })
    expect(readGatewayConfig({ ...staging, AFFIDAVIT_STAGING: 'false' }).isStaging).toBe(false)
    expect(faultsOf({ AFFIDAVIT_STAGING: 'true' })).toEqual([
      'AFFIDAVIT_STAGING: expected together with NODE_ENV=production alone',
    ])
    const releases = {
      ENCLAVE_RELEASES_FILE: '/etc/affidavit/public/releases.json',
      RELEASE_KEY: 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a',
    }
    expect(faultsOf({ ...staging, ...releases, LOG_LEVEL: 'error' })).toEqual([
      'LOG_LEVEL: expected debug, info or warn in staging, which says so in its log',
      expect.stringMatching(/^ENCLAVE_RELEASES_FILE: unexpected in staging/),
      expect.stringMatching(/^RELEASE_KEY: unexpected in staging/),
    ])
    expect(faultsOf({ NODE_ENV: 'production', AFFIDAVIT_STAGING: 'true' })).toEqual(
      faultsOf({ NODE_ENV: 'production' }),
    )
  })

  it.each(['prod', 'Production', 'staging'])(
    'readGatewayConfig refuses NODE_ENV %s, which may have been meant as production',
    (word) => {
      expect(faultsOf({ NODE_ENV: word })).toEqual([
        expect.stringContaining('NODE_ENV: expected one of'),
      ])
    },
  )

  it.each(['00'.repeat(32), 'ff'.repeat(32), 'zz'.repeat(32), 'a1'])(
    'readGatewayConfig refuses %s as a private key',
    (key) => {
      const faults = faultsOf({ ...REMOTE_CHAIN, RELAYER_PRIVATE_KEY: key })
      expect(faults).toEqual([expect.stringContaining('RELAYER_PRIVATE_KEY: expected')])
    },
  )

  it('readGatewayConfig never repeats a key', () => {
    const hush = 'hush'.repeat(60)
    const faults = faultsOf({
      RELAYER_PRIVATE_KEY: hush,
      OPENAI_API_KEY: `${hush} ${hush}`,
      DEV_API_KEY: hush,
    })
    expect(faults.length).toBeGreaterThanOrEqual(3)
    expect(faults.join()).not.toContain('hush')
  })
})
