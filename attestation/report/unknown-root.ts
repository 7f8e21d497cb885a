import { equalBytes } from '../bytes.ts'
import { AWS_ROOT_SHA256 } from '../nitro/policy.ts'

/** True if a root is not AWS's: it may be a development root. */
export function isOtherRoot(roots: readonly Uint8Array[] | undefined): boolean {
  return roots?.some((root) => !equalBytes(root, AWS_ROOT_SHA256)) ?? false
}

/** Stands beside each result for a reader whose roots isOtherRoot marks. */
export const OTHER_ROOT =
  "You accept a root that is not AWS's, such as the root of a development enclave: this proves " +
  'nothing to other people.'
