import { readFile } from 'node:fs/promises'
import { getCACertificates } from 'node:tls'

/**
 * PEM of the authorities that the gateway trusts for providers: the system's, and that of a
 * demonstration provider. Null: only the system's.
 */
export async function readProviderCas(
  demo: { readonly caFile: string } | null,
): Promise<readonly string[] | null> {
  if (demo === null) return null
  return [...getCACertificates('default'), await readFile(demo.caFile, 'utf8')]
}
