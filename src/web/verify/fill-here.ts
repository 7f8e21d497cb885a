import { bytesOf } from './bytes-of.ts'
import { EXPECTED_FILE_BYTES_MAX, fillPolicy, readExpectedFile } from './expected-files.ts'
import type { Filled } from './job.ts'

/** Rejects with PolicyFault. */
export async function fillHere(file: Blob): Promise<Filled> {
  const bytes = await bytesOf(file, EXPECTED_FILE_BYTES_MAX, 'The file')
  return fillPolicy(readExpectedFile('The file', bytes))
}
