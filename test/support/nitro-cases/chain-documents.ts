import { KEY_USAGE_BITS, keyUsage } from '../nitro-builder/certificate-builder.ts'
import type { Chain } from '../nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../nitro-builder/document-builder.ts'

export const documentOf = (chain: Chain) => buildDocument({ chain })
/** A document with another bundle, and the leaf of the standard one. */
export const bundled = (cabundle: Chain['cabundle']) => documentOf({ ...standardChain, cabundle })
/** The part of a policy that trusts the chain's root. */
export const trusting = ({ rootSha256 }: Chain) => ({ roots: [rootSha256] })
/** A document of this chain, whose root is trusted. */
export const trusted = (chain: Chain) => ({ document: documentOf(chain), policy: trusting(chain) })

const { digitalSignature, keyCertSign, cRLSign } = KEY_USAGE_BITS
export const authorityUsage = keyUsage(digitalSignature | keyCertSign | cRLSign)
export const leafUsage = keyUsage(digitalSignature, false)
