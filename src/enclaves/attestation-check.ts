import { decodeBase64, sha256 } from '../../attestation/bytes.ts'
import { decodeAttestationPayload } from '../../attestation/nitro/document.ts'
import { createAttestationVerifier } from '../../attestation/nitro/verify-attestation.ts'

/**
 * Gives what rejects an attestation document (standard base64) that does not verify at the time of `now`, Unix milliseconds: with AWS's
 * root, or, when `isRootKnown` is false because the security module is simulated, with whichever root the document brings.
 *
 * It does NOT check measurements: what code is acceptable is for those who rely on the records.
 */
export function createAttestationCheck({
  isRootKnown,
  now,
}: {
  readonly isRootKnown: boolean
  readonly now: () => number
}): (document: string) => Promise<void> {
  const verifier = createAttestationVerifier()
  // Verified once; then only its certificates' times are looked at.
  let known: { readonly document: string; readonly notAfterMs: number } | null = null
  return async (document) => {
    const atMs = now()
    if (known?.document === document && atMs <= known.notAfterMs) return
    const bytes = decodeBase64(document)
    const policy = {
      measurements: 'any',
      allowDebug: !isRootKnown,
      ...(isRootKnown ? {} : rootsOf(bytes)),
    } as const
    const { certificates } = await verifier.verify(bytes, policy, new Date(atMs))
    known = { document, notAfterMs: Math.min(...certificates.map(({ notAfterMs }) => notAfterMs)) }
  }
}

function rootsOf(document: Uint8Array): { readonly roots: readonly Uint8Array[] } {
  const [root] = decodeAttestationPayload(document).cabundle
  return { roots: root === undefined ? [] : [sha256(root)] }
}
