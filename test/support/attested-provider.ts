import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import { Transform } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { createServer, type TLSSocket } from 'node:tls'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { writeProviderEvidence } from '#attestation/providers/evidence/evidence-document.ts'
import type { TestAuthority } from './certificates.ts'
import { validityOf } from './nitro-builder/certificate-builder.ts'
import { buildChain } from './nitro-builder/development-pki.ts'
import { buildDocument, PCR_VALUES } from './nitro-builder/document-builder.ts'
import { kept } from './provider-builder/evidence-builder.ts'

/** The demonstration provider behind TLS, with a key that can change. */
export type AttestedTestProvider = {
  readonly origin: string
  /** SHA-256 of both keys, hex. It starts with the first one. */
  readonly keys: readonly [string, string]
  /** What it received on each connection, in the order of the connections. */
  readonly received: readonly string[]
  /** Gives it one of its keys. Ends all connections: each new one has this key. */
  useKey(which: 0 | 1): Promise<void>
  /** The demonstration provider's origin. Without it, connections are closed. */
  target: string
  close(): void
}

/** The model of the demonstration provider, by a name of the same length. */
export const ATTESTED_MODEL = 'safe/echo'

/** Starts it on a loopback port, with certificates of this authority. */
export async function startAttestedProvider(
  authority: TestAuthority,
): Promise<AttestedTestProvider> {
  const first = await authority.issue({ hosts: ['127.0.0.1'] })
  const second = await authority.issue({ hosts: ['127.0.0.1'] })
  const received: string[] = []
  const sockets = new Set<TLSSocket>()
  const server = createServer({ cert: first.certificate, key: first.key }, (socket) => {
    sockets.add(socket)
    const place = received.push('') - 1
    const { hostname, port } = new URL(provider.target)
    const demo = connect(Number(port), hostname)
    const rename = new Transform({
      transform(part, _, done) {
        const text = Buffer.from(part).toString('latin1')
        received[place] += text
        done(null, Buffer.from(text.replaceAll(ATTESTED_MODEL, 'demo/echo'), 'latin1'))
      },
    })
    socket.pipe(rename).pipe(demo).pipe(socket)
    socket.on('error', () => demo.destroy())
    socket.on('close', () => {
      sockets.delete(socket)
      demo.destroy()
    })
    demo.on('error', () => socket.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const provider: AttestedTestProvider = {
    origin: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    keys: [keyOf(first.certificate), keyOf(second.certificate)],
    received,
    useKey: async (which) => {
      const { certificate: cert, key } = which === 0 ? first : second
      server.setSecureContext({ cert, key })
      for (const socket of sockets) socket.destroy()
      // The enclave should see the end of its connections.
      await sleep(50)
    },
    target: 'http://127.0.0.1:9',
    close: () => void server.close(),
  }
  return provider
}

function keyOf(certificate: string): string {
  const spki = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' })
  return createHash('sha256').update(spki).digest('hex')
}

const NONCE = new Uint8Array(32).fill(0x4e)
const HOUR_MS = 3_600_000

/**
 * Evidence under a development root that an enclave of Nitro has this TLS key, made now or at
 * `fetchedAtMs`, and the policy that accepts it.
 */
export function attestKey(
  { origin, key }: { readonly origin: string; readonly key: string },
  fetchedAtMs = Date.now(),
): { readonly bytes: Uint8Array; readonly digest: string; readonly policy: JsonObject } {
  const configuration = { tls_public_keys: [key] }
  const text = Buffer.from(canonicalizeJson(configuration))
  const userData = createHash('sha256').update(text).digest()
  const document = buildDocument({
    chain: CHAIN,
    fields: {
      timestamp: Date.now(),
      nonce: NONCE,
      user_data: userData,
      public_key: Buffer.alloc(65, 4),
    },
  })
  const attestation = Buffer.from(document).toString('base64')
  const answer = JSON.stringify({ attestation, boot_configuration: configuration })
  const bytes = writeProviderEvidence({
    kind: 'nitro',
    origin,
    nonce: NONCE,
    fetchedAtMs,
    block: null,
    responses: [kept(`${origin}/v1/attestation`, answer)],
    collateral: [],
  })
  return {
    bytes,
    digest: createHash('sha256').update(bytes).digest('hex'),
    policy: {
      version: 1,
      kind: 'nitro',
      origins: [origin],
      measurements: [{ PCR0: Buffer.from(PCR_VALUES.get(0) ?? []).toString('hex') }],
      configurations: [userData.toString('hex')],
      roots: { aws: [Buffer.from(CHAIN.rootSha256).toString('hex')] },
    },
  }
}

/** Valid now: the certificates of other tests are valid at a fixed time. */
const CHAIN = buildChain(
  ...[0, 1, 2, 3, 4].map((level) => ({
    level,
    parts: {
      validity: validityOf(new Date(Date.now() - 60_000), new Date(Date.now() + 2 * HOUR_MS)),
    },
  })),
)
