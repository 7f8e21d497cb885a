import type { Affidavit } from './affidavit.ts'
import { KEEPER_VARIABLE } from './test-database.ts'

/** The run's service: tests do not end it, and other tests may have called it before. */
export type SharedAffidavit = Omit<Affidavit, 'output' | 'stop' | 'kill' | 'remove'>

/**
 * Gives the service that the files of one worker share, except tests that stop or configure a
 * service. A worker runs one file at a time, so no other file changes it meanwhile.
 */
export async function useAffidavit(): Promise<SharedAffidavit> {
  const reply = await fetch(`${process.env[KEEPER_VARIABLE]}/service/${process.env.VITEST_POOL_ID}`)
  const text = await reply.text()
  if (!reply.ok) throw new Error(`the run's service did not start: ${text}`)
  return JSON.parse(text)
}
