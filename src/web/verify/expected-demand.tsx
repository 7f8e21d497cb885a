import { useEffect, useState } from 'preact/hooks'
import { givePolicy, usePolicy } from '../kit/tab-policy.ts'
import type { Filled } from './job.ts'
import { PolicyForm } from './policy-form.tsx'

/** For pages that check again only when the reader presses a button. */
export function ExpectedDemand({
  readFile,
}: {
  readonly readFile: (file: File) => Promise<Filled>
}) {
  const { own } = usePolicy()
  const [given, setGiven] = useState(own)
  useEffect(() => setGiven(own), [own])
  return (
    <details class="panel">
      <summary>Your policy: code, configuration, roots, providers</summary>
      <PolicyForm
        given={given}
        readFile={readFile}
        onChange={(part) => setGiven((before) => ({ ...before, ...part }))}
      />
      <p>
        <button type="button" class="primary" onClick={() => givePolicy(given)}>
          Check by this
        </button>
      </p>
    </details>
  )
}
