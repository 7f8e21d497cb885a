import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentExpectations } from '../verify/development-expectations.ts'
import { fillInWorker } from '../verify/start-worker.ts'
import { CompletionPage } from './completion-page.tsx'

void takeDevelopmentExpectations(fillInWorker).then(() =>
  showPage(<CompletionPage name={location.pathname.replace(/^\/c\//, '')} />),
)
