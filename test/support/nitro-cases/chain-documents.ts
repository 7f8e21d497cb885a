import { KEY_USAGE_BITS, keyUsage } from '../nitro-builder/certificate-builder.ts'
import { type Alteration, buildChain, type Chain } from '../nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../nitro-builder/document-builder.ts'

/** A document whose chain is altered, with everything else as it should be. */
export const altered = (...alterations: readonly Alteration[]) =>
  documentOf(buildChain(...alterations))
export const documentOf = (chain: Chain) => buildDocument({ chain })
/** A document with another bundle, and the leaf of the standard one. */
export const bundled = (cabundle: Chain['cabundle']) => documentOf({ ...standardChain, cabundle })
/** The part of a policy that trusts the chain's root. */
export const trusting = ({ rootSha256 }: Chain) => ({ roots: [rootSha256] })

const { digitalSignature, keyCertSign, cRLSign } = KEY_USAGE_BITS
export const authorityUsage = keyUsage(digitalSignature | keyCertSign | cRLSign)
export const leafUsage = keyUsage(digitalSignature, false)
