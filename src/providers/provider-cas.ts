import { readFile } from 'node:fs/promises'
import { getCACertificates } from 'node:tls'

/**
 * PEM of the authorities that the gateway trusts for providers: the system's, and the one of a
 * demonstration provider, as its enclaves do. Null: the system's alone.
 */
export async function readProviderCas(
  demo: { readonly caFile: string } | null,
): Promise<readonly string[] | null> {
  if (demo === null) return null
  return [...getCACertificates('default'), await readFile(demo.caFile, 'utf8')]
}
