import { useState } from 'preact/hooks'
import type { BundlePolicy } from '../../../attestation/evidence/policy.ts'
import { bundlePolicyOf } from '../../../attestation/report/judge-evidence.ts'
import { FaultNotice } from '../kit/notices.tsx'
import { ExpectationFault } from '../verify/expectation-fault.ts'
import { ExpectationsForm, NO_FORM_EXPECTATIONS } from '../verify/expectations-form.tsx'
import { fillHere } from '../verify/fill-here.ts'
import type { FormExpectations } from '../verify/job.ts'
import { readExpectations } from '../verify/read-expectations.ts'

/** What the reader expects of the log's enclave. */
type Expected = {
  readonly policy: BundlePolicy
  /** Why what was given makes no sense; null when it does. */
  readonly fault: unknown
  readonly demand: (given: FormExpectations) => Promise<void>
}

/** Nothing is expected before the reader says so; what he said last holds until it is replaced. */
export function useExpected(): Expected {
  const [policy, setPolicy] = useState<BundlePolicy>({})
  const [fault, setFault] = useState<unknown>(null)
  const demand = async (given: FormExpectations) => {
    try {
      if (given.revocationLists.length > 0)
        throw new ExpectationFault(
          'This page does not use revocation lists.',
          'Leave them out here. You can check a completion of this log with them at /verify.',
        )
      // Of an enclave's statements nothing is looked up on a chain, and none has an outcome.
      const { confirmationsMin, outcomes, ...demanded } = bundlePolicyOf(
        (await readExpectations(given)).expected,
      )
      setPolicy(demanded)
      setFault(null)
    } catch (failed) {
      setFault(failed)
    }
  }
  return { policy, fault, demand }
}

/** Where the reader says what to expect of the enclave, its statements and their root. */
export function ExpectedPanel({ expected: { fault, demand } }: { readonly expected: Expected }) {
  const [given, setGiven] = useState(NO_FORM_EXPECTATIONS)
  return (
    <details class="panel">
      <summary>What you expect: code, configuration, roots</summary>
      <ExpectationsForm
        given={given}
        readFile={fillHere}
        onChange={(part) => setGiven((before) => ({ ...before, ...part }))}
      />
      {fault !== null && (
        <FaultNotice fault={fault}>
          {fault instanceof ExpectationFault ? fault.advice : undefined}
        </FaultNotice>
      )}
      <p>
        <button type="button" class="primary" onClick={() => void demand(given)}>
          Check by this
        </button>
      </p>
    </details>
  )
}
