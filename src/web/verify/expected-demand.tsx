import { useEffect, useState } from 'preact/hooks'
import { giveExpectations, useExpectations } from '../kit/tab-expectations.ts'
import { ExpectationsForm } from './expectations-form.tsx'

/** Where the reader says what to expect, on a page that checks again at a button alone. */
export function ExpectedDemand() {
  const { own } = useExpectations()
  const [given, setGiven] = useState(own)
  useEffect(() => setGiven(own), [own])
  return (
    <details class="panel">
      <summary>What you expect: code, configuration, roots</summary>
      <ExpectationsForm
        given={given}
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
