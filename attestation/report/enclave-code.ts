import type { Signed, SubjectReport } from './judge-record.ts'

/** Returns the checks of the enclave's code and settings that no check of a record stands for. */
export function openOfEnclave(
  holder: Pick<NonNullable<SubjectReport['holder']>, 'code'> | null,
): readonly string[] {
  return [...(holder?.code === 'any' ? ['measurements'] : []), 'boot configuration']
}

/** Only a release or PCR0 says which image runs. */
export function hasKnownCode({
  release,
  matchedRegisters,
  isDebugMode,
}: Pick<Signed, 'release' | 'matchedRegisters' | 'isDebugMode'>): boolean {
  return !isDebugMode && (release !== null || matchedRegisters.includes(0))
}
