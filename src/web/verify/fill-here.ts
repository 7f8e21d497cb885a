import { bytesOf } from './bytes-of.ts'
import { EXPECTED_FILE_BYTES_MAX, fillExpectations, readExpectedFile } from './expected-files.ts'
import type { Filled } from './job.ts'

/** Rejects with ExpectationFault. */
export async function fillHere(file: Blob): Promise<Filled> {
  const bytes = await bytesOf(file, EXPECTED_FILE_BYTES_MAX, 'The file')
  return fillExpectations(readExpectedFile('The file', bytes))
}
