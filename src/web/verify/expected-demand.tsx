import { useEffect, useState } from 'preact/hooks'
import { giveExpectations, useExpectations } from '../kit/tab-expectations.ts'
import { ExpectationsForm } from './expectations-form.tsx'
import type { Filled } from './job.ts'

/** For pages that check again only when the reader presses a button. */
export function ExpectedDemand({
  readFile,
}: {
  readonly readFile: (file: File) => Promise<Filled>
}) {
  const { own } = useExpectations()
  const [given, setGiven] = useState(own)
  useEffect(() => setGiven(own), [own])
  return (
    <details class="panel">
      <summary>What you expect: code, configuration, roots</summary>
      <ExpectationsForm
        given={given}
        readFile={readFile}
        onChange={(part) => setGiven((before) => ({ ...before, ...part }))}
      />
      <p>
        <button type="button" class="primary" onClick={() => giveExpectations(given)}>
          Check by this
        </button>
      </p>
    </details>
  )
}
