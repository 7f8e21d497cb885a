import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { connect as connectTls, createServer as createTlsServer } from 'node:tls'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  createTransport,
  IDLE_CONNECTION_MS,
  type ProviderAnswer,
  type Transport,
} from '#enclave/providers/transport.ts'
import { bundledCas } from '#enclave/providers/trusted-cas.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import {
  createAuthority,
  type TestAuthority,
  type TestCertificate,
} from '../../support/certificates.ts'
import { EVENT_STREAM_HEAD, send, wholeAnswer } from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { until } from '../../support/until.ts'

const HOUR_MS = 3_600_000
let authority: TestAuthority
let certificate: TestCertificate
const open: { close(): unknown }[] = []

beforeAll(async () => {
  authority = await createAuthority()
  certificate = await authority.issue({ hosts: ['127.0.0.1'] })
})

afterEach(async () => {
  for (const part of open.splice(0)) await part.close()
})

function makeTransport(cas = authority.certificate, connectTimeoutMs = 2_000): Transport {
  const transport = createTransport({ cas, connectTimeoutMs })
  open.push(transport)
  return transport
}

async function startProvider(
  tls: TestCertificate | undefined,
  steps?: () => Iterable<Step>,
): Promise<HostileProvider> {
  const answer = steps ?? (() => [send(wholeAnswer({ body: '{}' }))])
  const provider = await startHostileProvider(tls ? { tls, answer } : { answer })
  open.push(provider)
  return provider
}

/** Returns the answer's head, with the unread body. */
async function askHead(
  transport: Transport,
  origin: string,
  cancel = new AbortController(),
): Promise<ProviderAnswer> {
  const provider = { name: 'p', origin, path: '/chat', models: [] }
  return await transport.send({
    provider,
    endpoint: provider,
    headers: {},
    keys: [],
    credential: 'sk',
    body: Buffer.from('{}'),
    isStream: false,
    cancel,
    onConnected: () => undefined,
  })
}

async function ask(...call: Parameters<typeof askHead>): Promise<ProviderAnswer> {
  const answer = await askHead(...call)
  answer.body.resume()
  await new Promise((resolve) => answer.body.once('end', resolve))
  return answer
}

function codeOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => 'answered',
    (error) => error?.fault?.code ?? error,
  )
}

async function listen(server: Server): Promise<string> {
  open.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
}

describe('over TLS', () => {
  it('a call over TLS gives evidence of the key that answered', async () => {
    const provider = await startProvider(certificate)
    const { tls } = await ask(makeTransport(), provider.origin)
    const spki = new X509Certificate(certificate.certificate).publicKey.export({
      type: 'spki',
      format: 'der',
    })
    expect(tls).toEqual({
      protocol: 'TLSv1.3',
      spki_sha256: createHash('sha256').update(spki).digest('hex'),
      subject: 'CN=127.0.0.1',
      issuer: 'CN=Test authority',
    })
  })

  it('a call over TLS gives evidence of the key on each new connection, with a full handshake', async () => {
    const provider = await startProvider(certificate, () => [
      send(wholeAnswer({ body: '{}' })),
      { kind: 'end' },
    ])
    const transport = makeTransport()
    const first = await ask(transport, provider.origin)
    await until('the connection is closed', () => provider.countConnections() === 0)
    const second = await ask(transport, provider.origin)
    expect(second.tls).toEqual(first.tls)
    expect(provider.requests).toHaveLength(2)
  })

  it.each<[string, number, string]>([
    ['a byte', 200, '!'],
    ['a second answer', 200, Buffer.from(wholeAnswer({ body: '{}' })).toString()],
  ])(
    'an answer with %s after its end, status %i, has its status, its body and its key',
    async (_, status, more) => {
      const bytes = Buffer.concat([wholeAnswer({ status, body: '{}' }), Buffer.from(more)])
      const provider = await startProvider(certificate, () => [send(bytes)])
      const answer = await askHead(makeTransport(), provider.origin)
      expect(answer.status).toBe(status)
      expect(answer.tls?.subject).toBe('CN=127.0.0.1')
      expect(Buffer.concat(await answer.body.toArray()).toString()).toBe('{}')
    },
  )

  it.each<[string, () => Promise<TestCertificate>]>([
    [
      'of an unknown authority',
      async () => (await createAuthority()).issue({ hosts: ['127.0.0.1'] }),
    ],
    ['for another host', () => authority.issue({ hosts: ['other.example', '127.0.0.2'] })],
    [
      'that expired',
      () =>
        authority.issue({
          hosts: ['127.0.0.1'],
          validity: {
            notBefore: new Date(Date.now() - 2 * HOUR_MS),
            notAfter: new Date(Date.now() - HOUR_MS),
          },
        }),
    ],
  ])('the transport does not speak to a server with a certificate %s', async (_, issue) => {
    const provider = await startProvider(await issue())
    expect(await codeOf(ask(makeTransport(), provider.origin))).toBe('provider_unreachable')
    expect(provider.requests).toHaveLength(0)
  })

  it('the transport verifies certificates although the environment says not to', async () => {
    const provider = await startProvider(
      await (await createAuthority()).issue({ hosts: ['127.0.0.1'] }),
    )
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
    try {
      expect(await codeOf(ask(makeTransport(), provider.origin))).toBe('provider_unreachable')
    } finally {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED
    }
  })

  it('a call over TLS gives evidence of the key on a reused connection too', async () => {
    const provider = await startProvider(certificate)
    const transport = makeTransport()
    const first = await ask(transport, provider.origin)
    // Node.js takes a connection back in the turn after the answer's end.
    await new Promise((resolve) => setImmediate(resolve))
    expect((await ask(transport, provider.origin)).tls).toEqual(first.tls)
    expect(provider.countConnections()).toBe(1)
  })

  it('a body that cannot be read breaks after the head and its key were given', async () => {
    const bytes = Buffer.concat([EVENT_STREAM_HEAD, Buffer.from('ZZ\r\n')])
    const provider = await startProvider(certificate, () => [send(bytes)])
    const answer = await askHead(makeTransport(), provider.origin)
    expect(answer.tls?.subject).toBe('CN=127.0.0.1')
    await expect(answer.body.toArray()).rejects.toThrow()
  })

  it('the transport does not trust a private authority by default', async () => {
    const provider = await startProvider(certificate)
    expect(await codeOf(ask(makeTransport(bundledCas().pem), provider.origin))).toBe(
      'provider_unreachable',
    )
  })

  it('the transport does not speak TLS 1.1', async () => {
    const ciphers = 'ALL:@SECLEVEL=0'
    const versions = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1' } as const
    const { certificate: cert, key } = certificate
    const host = await listen(createTlsServer({ cert, key, ciphers, ...versions }))
    const port = Number(host.split(':')[1])
    const ca = authority.certificate
    const lax = connectTls({ host: '127.0.0.1', port, ca, ciphers, ...versions })
    open.push({ close: () => lax.destroy() })
    await once(lax, 'secureConnect')
    expect(lax.getProtocol()).toBe('TLSv1.1')
    expect(await codeOf(ask(makeTransport(), `https://${host}`))).toBe('provider_unreachable')
  })
})

describe('a connection', () => {
  it('a connection that is not accepted in time is given up, also in the TLS handshake', async () => {
    const silent = createServer(() => undefined)
    const origin = `https://${await listen(silent)}`
    const started = performance.now()
    expect(await codeOf(ask(makeTransport(authority.certificate, 150), origin))).toBe(
      'provider_timeout',
    )
    expect(performance.now() - started).toBeLessThan(AT_ONCE_MS)
  })

  it('an unused connection is kept for less time than servers keep it', async () => {
    const provider = await startProvider(undefined)
    await ask(makeTransport(), provider.origin)
    expect(provider.countConnections()).toBe(1)
    await until('the connection is closed', () => provider.countConnections() === 0)
    expect(IDLE_CONNECTION_MS).toBeLessThan(5_000)
  })
})

describe('a call that is cancelled', () => {
  it('a call that is cancelled ends with the reason, before and while it waits for an answer', async () => {
    const provider = await startProvider(undefined, () => [{ kind: 'stall' }])
    const transport = makeTransport()
    const early = new AbortController()
    early.abort('early')
    expect(await codeOf(ask(transport, provider.origin, early))).toBe('early')
    const late = new AbortController()
    const asked = codeOf(ask(transport, provider.origin, late))
    await until('the provider is asked', () => provider.requests.length > 0)
    late.abort('late')
    expect(await asked).toBe('late')
    await provider.requests[0]?.closed
  })
})
