import { join } from 'node:path'
import type { ConformanceCase, Demands } from './manifest.ts'

/** Options that a program may lack, and the demands that need them. */
export const FEATURES = {
  rpc: ['chain', 'confirmations'],
  crl: ['crls'],
  release: ['releases'],
  exchange: ['answer'],
  provider: ['policy'],
} as const satisfies Readonly<Record<string, readonly (keyof Demands)[]>>

export type Feature = keyof typeof FEATURES | 'attestation'

/** The features that a case needs. */
export function featuresOf({ kind, demands }: ConformanceCase): readonly Feature[] {
  const given = Object.entries(FEATURES).flatMap(([name, members]) =>
    members.some((member) => member in demands) ? [name as Feature] : [],
  )
  return kind === 'document' ? ['attestation', ...given] : given
}

/**
 * The arguments of a program for one case (README.md of test/vectors). `rpcUrl`: the endpoint of
 * the case's chain, when it has one.
 */
export function wordsOf(
  { kind, source, demands }: ConformanceCase,
  { folder, rpcUrl }: { readonly folder: string; readonly rpcUrl: string | null },
): readonly string[] {
  const fileOf = (name: string) => join(folder, name)
  const each = (option: string, values: readonly string[] = []) =>
    values.flatMap((value) => [option, value])
  const one = (option: string, value: string | number | undefined) =>
    value === undefined ? [] : [option, String(value)]
  return [
    kind === 'document' ? 'attestation' : 'verify',
    fileOf(source),
    '--json',
    ...each('--root', demands.roots?.map(fileOf)),
    ...each(
      '--pcr',
      Object.entries(demands.pcrs ?? {}).map(([index, hex]) => `${index}=${hex}`),
    ),
    ...(demands.any_measurement ? ['--any-measurement'] : []),
    ...(demands.allow_debug ? ['--allow-debug'] : []),
    ...each('--configuration', demands.configurations),
    ...each('--release', demands.releases?.map(fileOf)),
    ...each('--release-key', demands.release_keys),
    ...one('--release-signers', demands.release_signers),
    ...one('--allow-outcome', demands.allow_outcomes?.join(',')),
    ...each('--request', demands.request === undefined ? [] : [fileOf(demands.request)]),
    ...each('--answer', demands.answer === undefined ? [] : [fileOf(demands.answer)]),
    ...(demands.idempotent ? ['--idempotent'] : []),
    ...each('--crl', demands.crls?.map(fileOf)),
    ...each('--policy', demands.policy === undefined ? [] : [fileOf(demands.policy)]),
    ...one('--rpc', rpcUrl ?? undefined),
    ...one('--confirmations', demands.confirmations),
    ...one('--nonce', demands.nonce),
    ...one('--at', demands.at),
    ...(demands.historical ? ['--historical'] : []),
    ...one('--max-age', demands.max_age),
  ]
}
