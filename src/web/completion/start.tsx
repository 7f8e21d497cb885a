import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentPolicy } from '../verify/development-policy.ts'
import { fillInWorker } from '../verify/start-worker.ts'
import { CompletionPage } from './completion-page.tsx'

void takeDevelopmentPolicy(fillInWorker).then(() =>
  showPage(<CompletionPage name={location.pathname.replace(/^\/c\//, '')} />),
)
