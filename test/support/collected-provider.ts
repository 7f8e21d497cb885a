import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { CollateralOrigins } from '#src/providers/settings.ts'
import { createAuthority, type TestCertificate } from './certificates.ts'
import { sha } from './provider-builder/dstack-builder.ts'
import {
  BOOT_CONFIGURATION,
  type BuiltKind,
  buildProviderEvidence,
  type EvidenceChanges,
} from './provider-builder/evidence-builder.ts'

/** How the provider answers a request for its document. */
export type ProviderMode =
  | 'evidence'
  | 'hang'
  | 'flood' //       10 MB
  | 'redirect' //    to itself
  | 'other nonce'
  | 'other key'
  | 'no collateral'

/** A provider over TLS that has evidence under development roots for each nonce. */
export type AttestedProviderServer = {
  readonly origin: string
  /** PEM of the authority of its certificates. */
  readonly ca: string
  /** The policy file that accepts it. */
  readonly policy: JsonObject
  /** Its own origin, which serves collateral too. */
  readonly origins: CollateralOrigins
  /** Paths and queries that were asked for. */
  readonly asked: readonly string[]
  /** SHA-256 of the key of its certificate, hex. */
  key(): string
  answer(mode: ProviderMode): void
  /** Gets a certificate with another key. */
  changeKey(): Promise<void>
  /** Takes the certificate from before the last change, as another machine behind one address. */
  swapKey(): void
  stop(): Promise<void>
}

export async function startAttestedProvider(
  kind: BuiltKind = 'tinfoil v3 TDX',
): Promise<AttestedProviderServer> {
  const authority = await createAuthority('Attested providers')
  const issue = () => authority.issue({ hosts: ['localhost', '127.0.0.1'] })
  let certificate = await issue()
  let other = certificate
  let mode: ProviderMode = 'evidence'
  const asked: string[] = []
  const server = createServer(tlsOf(certificate), (request, response) => {
    asked.push(request.url ?? '')
    answer({ kind, mode, key: keyOf(certificate) }, request, response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `https://localhost:${(server.address() as AddressInfo).port}`
  return {
    origin,
    ca: authority.certificate,
    policy: policyOf(kind, origin, keyOf(certificate)),
    origins: { pcs: origin, certificates: origin, kds: origin, builds: origin },
    asked,
    key: () => keyOf(certificate),
    answer(next) {
      mode = next
    },
    async changeKey() {
      other = certificate
      certificate = await issue()
      server.setSecureContext(tlsOf(certificate))
    },
    swapKey() {
      ;[certificate, other] = [other, certificate]
      server.setSecureContext(tlsOf(certificate))
    },
    async stop() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function answer(
  { kind, mode, key }: { readonly kind: BuiltKind; mode: ProviderMode; readonly key: string },
  request: IncomingMessage,
  response: ServerResponse,
): void {
  const url = new URL(request.url ?? '', 'https://localhost')
  const nonce = url.searchParams.get('nonce')
  if (nonce !== null && mode === 'hang') return
  if (nonce !== null && mode === 'redirect')
    return void response.writeHead(302, { location: url.pathname + url.search }).end()
  const changes = (): EvidenceChanges => ({
    nonce: Buffer.from(mode === 'other nonce' ? '00'.repeat(32) : (nonce ?? ''), 'hex'),
    bound: (parts) => stateKey(parts, mode === 'other key' ? 'ee'.repeat(32) : key),
  })
  const kept =
    nonce === null
      ? collateralOf(kind).find((one) => new URL(one.url).pathname === url.pathname)
      : buildProviderEvidence(kind, changes()).evidence.responses[0]
  if (kept === undefined || (nonce === null && mode === 'no collateral'))
    return void response.writeHead(404).end()
  const body = nonce !== null && mode === 'flood' ? Buffer.alloc(10_000_000, ' ') : kept.body
  response.writeHead(200, Object.fromEntries(kept.headers)).end(body)
}

type Collateral = ReturnType<typeof buildProviderEvidence>['evidence']['collateral']
const collaterals = new Map<BuiltKind, Collateral>()

/** The collateral of a kind, which is the same for each nonce and key. */
function collateralOf(kind: BuiltKind): Collateral {
  const built = collaterals.get(kind) ?? buildProviderEvidence(kind, {}).evidence.collateral
  collaterals.set(kind, built)
  return built
}

function policyOf(kind: BuiltKind, origin: string, key: string): JsonObject {
  const configuration = { ...BOOT_CONFIGURATION, tls_public_keys: [key] }
  const configurations = [Buffer.from(digestBootConfiguration(configuration)).toString('hex')]
  const own = { origins: [origin], ...(kind === 'nitro' ? { configurations } : {}) }
  return buildProviderEvidence(kind, { policy: own }).policy
}

/** States the TLS key where the kind's document has it. */
// biome-ignore lint/suspicious/noExplicitAny: the parts of each kind's document differ
function stateKey(parts: any, key: string): void {
  if ('tls_cert_fingerprint' in parts) parts.tls_cert_fingerprint = key
  else if ('items' in parts) parts.items[0].data = key
  else if ('not_after' in parts) parts.tls_public_keys = [{ spki_sha256: key }]
  else parts.tls_public_keys = [key]
}

function tlsOf({ certificate: cert, key }: TestCertificate) {
  return { cert, key }
}

function keyOf({ certificate }: TestCertificate): string {
  const { publicKey } = new X509Certificate(certificate)
  return Buffer.from(sha('sha256', publicKey.export({ type: 'spki', format: 'der' }))).toString(
    'hex',
  )
}
