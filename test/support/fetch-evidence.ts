import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { request } from 'node:https'
import type { TLSSocket } from 'node:tls'
import {
  EVIDENCE_PATHS,
  type KeptResponse,
  type ProviderEvidence,
  writeProviderEvidence,
} from '#attestation/providers/evidence/evidence-document.ts'

/** An answer over TLS, and the key of the connection: SHA-256 of its SubjectPublicKeyInfo, hex. */
export type TlsAnswer = KeptResponse & { readonly key: string }

/** Asks a server whose certificate the CA in the file issued. */
export async function getOverTls(url: string, caFile: string): Promise<TlsAnswer> {
  const ca = await readFile(caFile)
  return new Promise((resolve, reject) => {
    const sent = request(url, { ca, agent: false }, (answer) => {
      const spki = (answer.socket as TLSSocket).getPeerX509Certificate()?.publicKey
      const der = spki?.export({ type: 'spki', format: 'der' }) ?? Buffer.alloc(0)
      const key = createHash('sha256').update(der).digest('hex')
      const parts: Buffer[] = []
      answer.on('data', (part) => parts.push(part))
      answer.on('end', () => {
        const body = new Uint8Array(Buffer.concat(parts))
        resolve({ url, status: answer.statusCode ?? 0, headers: new Map(), body, key })
      })
    })
    sent.on('error', reject)
    sent.end()
  })
}

/** Fetches evidence of a Tinfoil document over a nonce, as a collector keeps it. */
export async function fetchTinfoilEvidence(
  { origin, caFile }: { readonly origin: string; readonly caFile: string },
  given: Pick<ProviderEvidence, 'nonce' | 'block'>,
): Promise<{ readonly bytes: Uint8Array; readonly key: string }> {
  const nonce = Buffer.from(given.nonce).toString('hex')
  const answer = await getOverTls(`${origin}${EVIDENCE_PATHS.tinfoil}?nonce=${nonce}`, caFile)
  const { key, ...kept } = answer
  const bytes = writeProviderEvidence({
    kind: 'tinfoil',
    origin,
    ...given,
    fetchedAtMs: Date.now(),
    responses: [kept],
    collateral: [],
  })
  return { bytes, key }
}
