import { readFile } from 'node:fs/promises'
import { getCACertificates } from 'node:tls'

/**
 * Returns the PEM of the authorities that the gateway trusts for providers: those of the system and
 * of the demonstration provider. Null without such a provider: only the system's are trusted.
 */
export async function readProviderCas(
  demo: { readonly caFile: string } | null,
): Promise<readonly string[] | null> {
  if (demo === null) return null
  return [...getCACertificates('default'), await readFile(demo.caFile, 'utf8')]
}
